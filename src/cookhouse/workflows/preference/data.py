"""What a run over preferences trains on and what it holds out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cookhouse.chat import Message
from cookhouse.data import (
    BadRows,
    DataSource,
    HeldOut,
    NamedSource,
    PreferenceRow,
    read_pairs,
)
from cookhouse.errors import InputError
from cookhouse.settings import PreferenceSettings


@dataclass(frozen=True, kw_only=True)
class PreferenceData:
    """What a run reads."""

    train: Sequence[PreferenceRow]
    test: Sequence[PreferenceRow]
    """Chosen for evaluation; empty: nothing is evaluated."""
    notes: Sequence[str] = field(default_factory=list)


def read_data(config: PreferenceSettings, sources: Mapping[str, DataSource]) -> PreferenceData:
    """Read what `sources_of` names: preferences, or comparisons without ties.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows cannot be used, and are not to be left out.
    """
    bad = BadRows(config.on_bad_row)
    rows = {name: _read(source, bad) for name, source in sources.items()}
    train = [row for name, some in rows.items() if name.startswith("train") for row in some]
    test = [row for name, some in rows.items() if name.startswith("test") for row in some]
    if config.eval_fraction is not None:
        held_out = {
            int(index) for index in HeldOut(fraction=config.eval_fraction, seed=config.seed).indices(len(train))
        }
        test = [row for index, row in enumerate(train) if index in held_out]
        train = [row for index, row in enumerate(train) if index not in held_out]
    if config.loss_fn in _OF_ONE_PROMPT and (single := next((r for r in train + test if r.rejected_prompt), None)):
        raise InputError(
            f"{single.source}: these rows judge single answers as good or bad, and {config.loss_fn} compares two "
            "answers to one prompt; set loss_fn=kto"
        )
    asked = {_key(prompt) for row in test for prompt in row.prompts}
    kept = [row for row in train if asked.isdisjoint(map(_key, row.prompts))]
    count = min(config.num_eval, len(test))
    test = [test[index * len(test) // count] for index in range(count)]
    notes = [*bad.notes]
    if len(kept) < len(train):
        notes.append(f"{len(train) - len(kept):,} pairs have a held-out pair's prompt, and are not trained on")
    if not kept:
        raise InputError("every pair has a held-out pair's prompt; nothing is left to train on")
    return PreferenceData(train=kept, test=test, notes=notes)


_OF_ONE_PROMPT = ("dpo", "dpo_norm", "ipo", "orpo", "simpo")
"""Losses that compare the two answers of a pair with one another."""


def _read(source: DataSource, bad: BadRows) -> list[PreferenceRow]:
    known = source.known if isinstance(source, NamedSource) else None
    if known is not None and known.kind != "preferences":
        raise InputError(f"{source} holds {known.kind}, and this run needs preferences; give a set such as hh")
    return read_pairs(source, bad=bad)


def _key(prompt: Sequence[Message]) -> str:
    return json.dumps(prompt, sort_keys=True)
