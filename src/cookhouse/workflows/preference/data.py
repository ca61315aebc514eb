"""What a run over preferences trains on and what it holds out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from cookhouse.data import BadRows, DataSource, PreferenceRow, read_pairs
from cookhouse.errors import InputError
from cookhouse.settings import PreferenceSettings
from cookhouse.workflows.training_run.rows import SplitRows, check_preferences, split_rows

PreferenceData: TypeAlias = SplitRows[PreferenceRow]
"""What a run reads."""


def read_data(config: PreferenceSettings, sources: Mapping[str, DataSource]) -> PreferenceData:
    """Read what `sources_of` names: preferences, or comparisons without ties.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    bad = BadRows(config.on_bad_row)
    rows = {name: _read(source, bad) for name, source in sources.items()}
    singles = (row for some in rows.values() for row in some if row.rejected_prompt is not None)
    if config.loss_fn in _OF_ONE_PROMPT and (single := next(singles, None)) is not None:
        raise InputError(
            f"{single.source}: these rows judge single answers as good or bad, and {config.loss_fn} compares two "
            "answers to one prompt; set loss_fn=kto"
        )
    split = split_rows(config, rows, seed=config.seed, num_eval=config.num_eval)
    return replace(split, notes=[*bad.notes, *split.notes])


_OF_ONE_PROMPT = ("dpo", "dpo_norm", "ipo", "orpo", "simpo")
"""Losses that compare the two answers of a pair with one another."""


def _read(source: DataSource, bad: BadRows) -> list[PreferenceRow]:
    check_preferences(source)
    return read_pairs(source, bad=bad)
