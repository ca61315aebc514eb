"""Comparisons as examples that teach a preference model to say which of two answers is better."""

import random
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from cookhouse.chat import ComparisonRenderer, Message, text_of
from cookhouse.data.batches.examples import Example
from cookhouse.data.parsing import BadRows, parse_each
from cookhouse.data.rows.comparisons import swapped, without_ties
from cookhouse.data.rows.pairs import ComparisonRow
from cookhouse.errors import InputError

Ties = Literal["label", "skip", "refuse"]
"""Comparisons in which neither answer is better are learned as the label Tie, left out, or rows that cannot be used."""


def usable_comparisons(
    rows: Iterable[ComparisonRow], ties: Ties, bad: BadRows | None = None
) -> tuple[list[ComparisonRow], int]:
    """Comparisons that something can be learned from, and the number of ties left out.

    Raises:
        BadRowsError: an answer is empty, or both are the same and one is said to be better, or a tie is refused.
    """
    checked = parse_each(rows, lambda row: _checked(row, ties), bad)
    kept = without_ties(checked) if ties == "skip" else checked
    return kept, len(checked) - len(kept)


def render_comparisons(
    rows: Sequence[ComparisonRow],
    renderer: ComparisonRenderer,
    *,
    max_length: int,
    in_both_orders: bool,
    seed: int,
    bad: BadRows | None = None,
) -> list[Example]:
    """Examples in which the label alone has weight: two of each row, one for each order of its answers, or one in the
    order that the seed draws for it. One longer than `max_length` is truncated: the label, at its end, is lost.

    Raises:
        BadRowsError: the family cannot write rows, each as `source: reason`.
    """
    orders = random.Random(f"orders {seed}")

    def render(row: ComparisonRow) -> list[Example]:
        given = row if in_both_orders or orders.random() < 0.5 else swapped(row)
        each = [given, swapped(given)] if in_both_orders else [given]
        return [_example(one, renderer, max_length) for one in each]

    return [example for examples in parse_each(rows, render, bad) for example in examples]


def _checked(row: ComparisonRow, ties: Ties) -> ComparisonRow:
    for name, said in (("completion_a", row.completion_a), ("completion_b", row.completion_b)):
        if not _says_something(said):
            raise InputError(f"{row.source}: {name} is empty; a comparison needs two answers")
    if row.label == "Tie":
        if ties == "refuse":
            raise InputError(
                f"{row.source}: the label is Tie; set ties=label to learn ties, or ties=skip to leave them"
            )
    elif row.completion_a == row.completion_b:
        raise InputError(f"{row.source}: both answers are the same, and {row.label} is said to be better; remove it")
    return row


def _says_something(said: Sequence[Message]) -> bool:
    return any(text_of(message).strip() or message.get("tool_calls") for message in said)


def _example(row: ComparisonRow, renderer: ComparisonRenderer, max_length: int) -> Example:
    try:
        tokens, weights = renderer.build_example(row, row.label)
    except InputError as error:
        raise InputError(f"{row.source}: {error}") from error
    return Example(
        tokens_T=np.array(tokens[:max_length], dtype=np.int32),
        weights_T=np.array(weights[:max_length], dtype=np.float32),
        source=row.source,
        num_cut_tokens=max(len(tokens) - max_length, 0),
    )
