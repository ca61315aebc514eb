"""Rows of a run over preferences: those that it trains on and those that it holds out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cookhouse import algorithms as alg
from cookhouse.data import (
    BadRows,
    DataSource,
    JoinedRows,
    LabeledRow,
    PreferenceRow,
    Rows,
    is_drawn,
    paired,
    parse_each,
    preference_of,
    prompt_key,
    read_judged,
    sampled,
    stream,
)
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES, PAIR_LOSSES
from cookhouse.naming import listed
from cookhouse.settings import PreferenceSettings


@dataclass(frozen=True, kw_only=True)
class StreamedRows:
    """Rows to train on that are not read as a whole, but for those that are held out."""

    name: str
    rows: Rows
    is_held_out: Callable[[PreferenceRow], bool]


@dataclass(frozen=True, kw_only=True)
class PreferenceData(alg.SplitRows[PreferenceRow]):
    """Data sets that a run reads."""

    streamed: StreamedRows | None = None
    """What it trains on in the place of `train`, which is then empty."""


def read_data(config: PreferenceSettings, sources: Mapping[str, DataSource]) -> PreferenceData:
    """Read what `sources_of` names: preferences, comparisons without ties, or single answers. Much data to train on is
    opened alone.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    bad = BadRows(config.on_bad_row)
    for source in sources.values():
        alg.check_preferences(source)
    train = [source for name, source in sources.items() if name.startswith("train")]
    if sum(source.rows.num_bytes for source in train) > stream.MAX_WHOLE_BYTES:
        return _opened(config, sources, bad)
    rows = {name: read_judged(source, bad=bad) for name, source in sources.items()}
    _check_loss(config, rows)
    # Single answers are apart before they are matched: of the rarer kind each is then in several pairs.
    split = alg.split_rows(config, rows, seed=config.seed, kind_of=_kind)
    test = evenly_spaced(paired(split.test), config.num_eval)
    return PreferenceData(train=paired(split.train), test=test, notes=[*bad.notes, *split.notes])


def _kind(row: PreferenceRow | LabeledRow) -> bool | None:
    return row.is_good if isinstance(row, LabeledRow) else None


def _check_loss(config: PreferenceSettings, rows: Mapping[str, Sequence[PreferenceRow | LabeledRow]]) -> None:
    single = next((row for some in rows.values() for row in some if isinstance(row, LabeledRow)), None)
    if single is not None and PAIR_LOSSES.find(config.pair_loss).compares_answers:
        others = listed((name for name, loss in BUILT_IN_PAIR_LOSSES.items() if not loss.compares_answers), "or")
        raise InputError(
            f"{single.source}: such rows judge single answers as good or bad, and {config.pair_loss} compares two "
            f"answers to one prompt; set pair_loss={others}"
        )


def _opened(config: PreferenceSettings, sources: Mapping[str, DataSource], bad: BadRows) -> PreferenceData:
    name, rows = alg.joined([(str(source), source.rows) for key, source in sources.items() if key.startswith("train")])
    if config.eval_fraction is not None:
        is_held_out = partial(_is_drawn, config.eval_fraction, config.seed)
        test = _drawn(name, rows, is_held_out, config)
    else:
        given = [source.rows for key, source in sources.items() if key.startswith("test")]
        test = parse_each(sampled(JoinedRows(given), config.num_eval), preference_of, bad) if given else []
        is_held_out = partial(_asks, frozenset(prompt_key(prompt) for row in test for prompt in row.prompts))
    return PreferenceData(
        train=(),
        test=test,
        notes=[*bad.notes, "the data is read as it is trained on: its rows are checked then, and counts are estimates"],
        streamed=StreamedRows(name=name, rows=rows, is_held_out=is_held_out),
    )


def _is_drawn(fraction: float, seed: int, row: PreferenceRow) -> bool:
    return is_drawn(row.prompt, fraction, seed)


def _asks(keys: frozenset[str], row: PreferenceRow) -> bool:
    return prompt_key(row.prompt) in keys


def _drawn(
    name: str, rows: Rows, is_held_out: Callable[[PreferenceRow], bool], config: PreferenceSettings
) -> list[PreferenceRow]:
    """At most `num_eval` held-out rows, looked for among as many as should hold twice that, from all over the set."""
    assert config.eval_fraction is not None
    found: list[PreferenceRow] = []
    refused: list[InputError] = []
    for row in sampled(rows, math.ceil(2 * config.num_eval / config.eval_fraction)):
        try:
            preference = preference_of(row)
        except InputError as error:  # reported, or left out and counted, once it is to be trained on
            refused.append(error)
            continue
        if is_held_out(preference):
            found.append(preference)
    if config.num_eval and not found:
        if refused:
            raise refused[0]
        raise InputError(f"eval_fraction={config.eval_fraction} holds out no row of {name}; give more, or test_path")
    return evenly_spaced(found, config.num_eval)
