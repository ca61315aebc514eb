"""Comparisons of two answers, and the preferences that they are."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cookhouse.chat import Label, in_other_order
from cookhouse.data.parsing import BadRows, parse_each
from cookhouse.data.rows.conversations import iter_rows
from cookhouse.data.rows.labeled import LabeledRow, is_labeled, labeled_from_row, matched
from cookhouse.data.rows.names import in_our_case
from cookhouse.data.rows.pairs import (
    NAMES,
    ComparisonRow,
    PreferenceRow,
    comparison_from_row,
    preference_from_row,
)
from cookhouse.data.sources.source import DataSource, data_source
from cookhouse.data.sources.store import RawRow
from cookhouse.errors import InputError

_SWAPPED: dict[Label, Label] = {"A": "B", "B": "A", "Tie": "Tie"}


def read_pairs(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[PreferenceRow]:
    """The preferences of a source, as `paired` makes them of `read_judged`. Raises as these do."""
    return paired(read_judged(given, bad=bad))


def read_judged(
    given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None
) -> list[PreferenceRow | LabeledRow]:
    """Read judged answers of a source: its rows are preferences, comparisons without ties, or single answers with a
    label of true or false.

    Raises:
        InputError: it cannot be read or holds no row that can be used.
        BadRowsError: some of its rows are bad, ties among them, each as `file:line: reason` or `NAME row N: reason`.
    """
    source = data_source(given)
    read = parse_each(iter_rows(source), lambda row: _pair(row.value(), row.place), bad)
    if not read:
        raise InputError(f"{source} holds no preferences; it needs at least one pair")
    return read


def paired(rows: Sequence[PreferenceRow | LabeledRow]) -> list[PreferenceRow]:
    """Preferences as they are; single answers behind them, as pairs of answers to different prompts (see `matched`).

    Raises:
        InputError: all single answers are good, or all are bad.
    """
    pairs = [row for row in rows if isinstance(row, PreferenceRow)]
    labeled = [row for row in rows if isinstance(row, LabeledRow)]
    return [*pairs, *matched(labeled)] if labeled else pairs


def preference_of(row: RawRow) -> PreferenceRow:
    """The preference of a row that is one, or a comparison without a tie, whatever the others are. Raises `InputError`
    as `source: reason`, also for a single answer with a label, which is nothing without others.
    """
    found = _pair(row.value(), row.place)
    if isinstance(found, LabeledRow):
        raise InputError(
            f"{row.place}: single answers with a label are matched with one another, and there is more data than is "
            "read as a whole; give fewer of them, as by n_train_samples, or pairs"
        )
    return found


def _pair(row: object, source: str) -> PreferenceRow | LabeledRow:
    row = in_our_case(row, NAMES)
    if is_labeled(row):
        return labeled_from_row(row, source)
    if isinstance(row, Mapping) and ("comparison" in row or "label" in row):
        return preferred(comparison_from_row(row, source))
    return preference_from_row(row, source)


def swapped(row: ComparisonRow) -> ComparisonRow:
    """The same judgment with the answers in the other order."""
    return replace(in_other_order(row), label=_SWAPPED[row.label])


def preferred(row: ComparisonRow) -> PreferenceRow:
    """The preference that a comparison is.

    Raises:
        InputError: `source: reason`; it is a tie, or one of the answers is empty, or both are the same.
    """
    if row.label == "Tie":
        raise InputError(f"{row.source}: the label is Tie, and a preference needs a better answer; leave ties out")
    better = row if row.label == "A" else swapped(row)
    if better.completion_a == better.completion_b:
        raise InputError(f"{row.source}: both answers are the same; nothing could be learned from them")
    return PreferenceRow(
        prompt=better.prompt,
        chosen=better.completion_a,
        rejected=better.completion_b,
        source=row.source,
        extra=row.extra,
    )


def without_ties(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Comparisons in which one answer is better."""
    return [row for row in rows if row.label != "Tie"]


def in_both_orders(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Each comparison and, behind it, the same one with the answers in the other order: a judge that learns from them
    learns nothing of the order.
    """
    return [each for row in rows for each in (row, swapped(row))]
