"""The order of rows that are read in blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.data.batches.order import BlockOrder


def places(order: BlockOrder, counts: list[int], start: int, stop: int) -> list[tuple[int, int]]:
    """Block and row within it of each place."""
    found = []
    for window, first, end in order.pieces(start, stop):
        rows = [(block, row) for block in order.blocks(window) for row in range(counts[block])]
        found += [rows[index] for index in order.rows(window, len(rows))[first:end]]
    return found


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20).filter(any), st.integers(1, 12), st.integers(0, 3))
def test_every_row_comes_once_and_is_found_without_those_before(counts: list[int], window: int, epoch: int) -> None:
    # Catches a resume in the middle that reads other rows than the run that it goes on with.
    order = BlockOrder(np.array(counts), window, f"0/{epoch}")
    total = sum(counts)
    whole = places(order, counts, 0, total)
    assert sorted(whole) == [(block, row) for block, count in enumerate(counts) for row in range(count)]
    again = BlockOrder(np.array(counts), window, f"0/{epoch}")
    middle = total // 2
    assert places(again, counts, middle, total) == whole[middle:]


@pytest.mark.parametrize(("key", "expected"), [("0/0", [0, 1, 7, 6, 5, 3, 4, 2]), ("0/1", [0, 3, 1, 2, 6, 4, 7, 5])])
def test_the_order_does_not_change_between_versions(key: str, expected: list[int]) -> None:
    order = BlockOrder(np.array([2, 2, 2, 2]), 4, key)
    assert [block * 2 + row for block, row in places(order, [2] * 4, 0, 8)] == expected
