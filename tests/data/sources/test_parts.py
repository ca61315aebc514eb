"""Rows made of other rows, and which rows are held out."""

from typing import Any

import numpy as np
import pytest

from cookhouse.data import (
    HeldOut,
    HubSource,
    HubSplit,
    JoinedRows,
    Rows,
    SelectedRows,
    fingerprint,
    fingerprint_of,
    num_rows,
    sampled,
)
from cookhouse.data.sources.parts import ConvertedRows
from cookhouse.data.sources.tables import ListRows
from cookhouse.errors import InputError


def rows(first: int, count: int) -> ListRows:
    return ListRows([{"n": number} for number in range(first, first + count)], "rows", num_bytes=10 * count)


def numbers(given: Rows) -> list[int]:
    values: list[Any] = [row.value() for block in range(len(given.block_rows)) for row in given.read(block)]
    return [value["n"] for value in values]


JOINED = JoinedRows([rows(0, 3), rows(3, 0), rows(3, 4)])


def test_some_rows_and_the_others_are_all_rows() -> None:
    # Catches a row that is both trained on and held out, or neither.
    indices = np.array([5, 0, 3])
    some, others = SelectedRows(JOINED, indices), SelectedRows(JOINED, indices, without=True)
    assert (numbers(some), numbers(others)) == ([0, 3, 5], [1, 2, 4, 6])
    assert (some.block_rows.tolist(), others.block_rows.tolist()) == ([1, 0, 2], [2, 0, 2])
    assert (num_rows(JOINED), JOINED.num_bytes, some.num_bytes) == (7, 70, 30)
    assert numbers(SelectedRows(some, np.array([1]))) == [3]


def test_a_sample_is_spread_over_the_set() -> None:
    values: list[Any] = [row.value() for row in sampled(JOINED, 3)]
    assert [value["n"] for value in values] == [0, 2, 4]
    assert len([*sampled(JOINED, 100)]) == 7


@pytest.mark.parametrize(
    ("held_out", "total", "count"),
    [
        (HeldOut(fraction=0.1, seed=0), 100, 10),
        (HeldOut(fraction=0.001, seed=0), 100, 1),
        (HeldOut(fraction=0.999, seed=0), 100, 99),
        (HeldOut(count=30, seed=0), 100, 30),
        (HeldOut(count=30, seed=0), 40, 20),
    ],
)
def test_some_are_always_left_to_train_on(held_out: HeldOut, total: int, count: int) -> None:
    indices = held_out.indices(total)
    assert len(set(indices.tolist())) == len(indices) == count
    assert indices.tolist() == held_out.indices(total).tolist()


def test_what_is_held_out_hangs_on_the_seed() -> None:
    by_seed = [HeldOut(fraction=0.2, seed=seed).indices(50).tolist() for seed in (0, 1)]
    assert by_seed[0] != by_seed[1]
    assert HeldOut(count=3).indices(50).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="1 rows are too few to hold some of them out"):
        HeldOut(fraction=0.5).indices(1)


def test_a_row_that_cannot_be_converted_keeps_its_place() -> None:
    def convert(row: Any) -> dict[str, object] | None:
        if row["n"] == 2:
            raise InputError("two is no good")
        return None if row["n"] == 1 else {"n": row["m"] if row["n"] == 0 else row["n"]}

    first, second, third, fourth = ConvertedRows(rows(0, 4), convert).read(0)
    assert (second.is_blank, fourth.value()) == (True, {"n": 3})
    for row, reason in (
        (first, "rows row 1: it has not the fields of its set: KeyError: 'm'"),
        (third, "two is no good"),
    ):
        with pytest.raises(InputError) as caught:
            row.value()
        assert reason in str(caught.value)


class _Store:
    """Opens the same rows by any name."""

    synthetic = False

    def __init__(self, given: Rows) -> None:
        self._rows = given

    def open(self, split: HubSplit) -> Rows:
        del split
        return self._rows


def hub(*parts: Rows) -> HubSource:
    return HubSource(split=HubSplit(name="owner/name"), store=_Store(JoinedRows(parts)))


def test_a_set_that_is_no_file_has_a_fingerprint_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a resume on a set of the hub that has changed.
    before = fingerprint_of(hub(JOINED))
    assert (before.num_lines, len(before.marks)) == (7, 7)
    after = fingerprint_of(hub(rows(0, 3), rows(4, 4)))
    assert before.changes_to(after) == "it has 7 lines as before; the first that is different is line 4"
    monkeypatch.setattr(fingerprint, "MAX_WHOLE_BYTES", 1)
    before = fingerprint_of(hub(JOINED))
    after = fingerprint_of(hub(rows(0, 3), rows(3, 0), rows(4, 4)))
    assert before.num_lines is None
    told = before.changes_to(after)
    assert told is not None
    assert told.startswith("it has 70 bytes as before; the first difference found is after byte")
