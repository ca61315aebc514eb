"""What a run over preferences trains on and what it holds out."""

from collections.abc import Mapping
from dataclasses import dataclass

from cookhouse.data import (
    BadRows,
    DataSource,
    JoinedRows,
    PreferenceRow,
    Rows,
    parse_each,
    preference_of,
    read_pairs,
    sampled,
)
from cookhouse.data.batches import stream
from cookhouse.errors import InputError
from cookhouse.settings import PreferenceSettings
from cookhouse.workflows.training_run.rows import (
    SplitRows,
    check_preferences,
    joined,
    prompt_key,
    split_off,
    split_rows,
)


@dataclass(frozen=True, kw_only=True)
class StreamedRows:
    """Rows to train on that are not read as a whole."""

    name: str
    rows: Rows
    held_out_prompts: frozenset[str]
    """Keys of prompts that are not trained on."""

    def is_held_out(self, row: PreferenceRow) -> bool:
        """Whether it asks what is held out."""
        return not self.held_out_prompts.isdisjoint(map(prompt_key, row.prompts))


@dataclass(frozen=True, kw_only=True)
class PreferenceData(SplitRows[PreferenceRow]):
    """What a run reads."""

    streamed: StreamedRows | None = None
    """What it trains on in the place of `train`, which is then empty."""


def read_data(config: PreferenceSettings, sources: Mapping[str, DataSource]) -> PreferenceData:
    """Read what `sources_of` names: preferences, or comparisons without ties. Much data to train on is opened alone.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    bad = BadRows(config.on_bad_row)
    for source in sources.values():
        check_preferences(source)
    train = [source for name, source in sources.items() if name.startswith("train")]
    if sum(source.rows.num_bytes for source in train) > stream.MAX_WHOLE_BYTES:
        return _opened(config, sources, bad)
    rows = {name: read_pairs(source, bad=bad) for name, source in sources.items()}
    singles = (row for some in rows.values() for row in some if row.rejected_prompt is not None)
    if config.loss_fn in _OF_ONE_PROMPT and (single := next(singles, None)) is not None:
        raise InputError(
            f"{single.source}: these rows judge single answers as good or bad, and {config.loss_fn} compares two "
            "answers to one prompt; set loss_fn=kto"
        )
    split = split_rows(config, rows, seed=config.seed, num_eval=config.num_eval)
    return PreferenceData(train=split.train, test=split.test, notes=[*bad.notes, *split.notes])


_OF_ONE_PROMPT = ("dpo", "dpo_norm", "ipo", "orpo", "simpo")
"""Losses that compare the two answers of a pair with one another."""


def _opened(config: PreferenceSettings, sources: Mapping[str, DataSource], bad: BadRows) -> PreferenceData:
    opened = {
        name: split_off(source.rows, config.eval_fraction if name.startswith("train") else None, config.seed)
        for name, source in sources.items()
    }
    train = [(str(sources[name]), rows) for name, (rows, _) in opened.items() if name.startswith("train")]
    split = [rows for _, rows in opened.values() if rows is not None]
    given = [rows for name, (rows, _) in opened.items() if name.startswith("test")]
    held_out = split + given
    test = (
        parse_each(sampled(JoinedRows(held_out), config.num_eval), preference_of, bad)
        if held_out and config.num_eval
        else []
    )
    name, rows = joined(train)
    prompts = frozenset(prompt_key(prompt) for row in test for prompt in row.prompts)
    return PreferenceData(
        train=(),
        test=test,
        notes=[*bad.notes, "the data is read as it is trained on: its rows are checked then, and counts are estimates"],
        streamed=StreamedRows(name=name, rows=rows, held_out_prompts=prompts),
    )
