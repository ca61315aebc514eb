"""Rows that are read as they are needed: the order of an epoch, and what becomes of each row."""

import json
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.data import Conversation, Example, JoinedRows, ShuffledRows, StreamedDataset, cut_example
from cookhouse.data.batches import stream
from cookhouse.data.batches.stream import BlockOrder
from cookhouse.data.sources.tables import ListRows

NUM_ROWS = 30


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of about six rows."""
    monkeypatch.setattr(stream, "_WINDOW_BYTES", 600)


def joined(rows: Sequence[object], per_block: int = 3) -> JoinedRows:
    """Rows in blocks, of a hundred bytes each."""
    starts = range(0, len(rows), per_block)
    return JoinedRows([ListRows(rows[at : at + per_block], "rows", num_bytes=100 * per_block) for at in starts])


def shuffled(seed: int = 0, rows: Sequence[object] = range(NUM_ROWS)) -> ShuffledRows:
    return ShuffledRows(joined(rows), name="rows", batch_size=4, seed=seed)


def batches(rows: ShuffledRows) -> list[list[Any]]:
    return [[row.content for row in rows.rows_of(index)] for index in range(len(rows))]


def test_each_epoch_each_pass_and_each_seed_has_an_order_of_its_own() -> None:
    # Catches batches that come again in every epoch, or in every pass of a smaller set within one.
    rows = shuffled()
    orders = []
    for epoch, lap in ((0, 0), (1, 0), (0, 1), (1, 1)):
        rows.set_epoch(epoch, lap)
        orders.append(batches(rows))
        assert [len(batch) for batch in orders[-1]] == [*[4] * 7, 2]
        assert sorted(chain.from_iterable(orders[-1])) == list(range(NUM_ROWS))
    assert len({str(order) for order in orders}) == 4
    rows.set_epoch(1)
    assert batches(rows) == orders[1]
    assert batches(shuffled(seed=1)) not in orders
    assert batches(shuffled()) == orders[0]


def test_a_batch_is_found_without_those_before_and_after_another_epoch() -> None:
    # Catches rows of a window of another epoch, which is kept in memory.
    rows = shuffled()
    whole = batches(rows)
    assert [row.content for row in shuffled().rows_of(5)] == whole[5]
    rows.rows_of(0)
    rows.set_epoch(1)
    second = [row.content for row in rows.rows_of(0)]
    rows.set_epoch(0)
    assert [row.content for row in rows.rows_of(0)] == whole[0] != second
    for index in (-1, 8):
        with pytest.raises(IndexError):
            rows.rows_of(index)


def test_rows_of_one_batch_are_from_all_over_the_set() -> None:
    # Catches windows that are shuffled alike, and rows that stay with those that stand beside them.
    rows = shuffled()
    steps = [abs(one - other) for batch in batches(rows) for one, other in pairwise(batch)]
    assert sum(step > 1 for step in steps) > len(steps) / 2
    orders = [tuple(np.argsort(np.argsort(batch))) for batch in batches(rows) if len(batch) == 4]
    assert len(set(orders)) > 1


def example(source: str, length: int, num_trained: int) -> Example:
    weights = np.zeros(length, dtype=np.float32)
    weights[length - num_trained :] = 1
    return Example(tokens_T=np.arange(length, dtype=np.int32), weights_T=weights, source=source, num_cut_tokens=0)


def streamed(render: Callable[[Conversation], Sequence[Example]], **settings: Any) -> StreamedDataset:
    lines = [
        json.dumps({"prompt": f"say {n}", "completion": f"it is {n}"}).encode() if n % 5 else b" \n" for n in range(20)
    ]
    return StreamedDataset(joined(lines), render, name="rows", batch_size=4, **settings)


def test_what_is_blank_left_out_or_untrained_makes_a_batch_smaller() -> None:
    # Catches a held-out row that is trained on, and a row that counts although nothing is learned from it.
    def render(conversation: Conversation) -> list[Example]:
        number = int(str(conversation.messages[-1]["content"]).removeprefix("it is "))
        return [example(conversation.source, 6, num_trained=0 if number == 7 else 2)]

    def is_left_out(conversation: Conversation) -> bool:
        return conversation.messages[-1]["content"] in ("it is 1", "it is 2")

    dataset = streamed(render, is_left_out=is_left_out)
    made = [dataset.get_batch(index) for index in range(len(dataset))]
    # 20 rows, of which 4 are blank, 2 left out and 1 has nothing to train on.
    assert sum(len(batch.data_D) for batch in made) == 13
    assert sum(batch.statistics.num_examples for batch in made) == 14
    assert sum(batch.statistics.num_untrained for batch in made) == 1
    assert sum(batch.num_skipped for batch in made) == 0


def test_a_cut_adds_to_what_was_cut_before() -> None:
    whole = Example(
        tokens_T=np.arange(10, dtype=np.int32),
        weights_T=np.ones(10, dtype=np.float32),
        source="x:1",
        num_cut_tokens=3,
    )
    cut = cut_example(whole, 8)
    assert (cut.tokens_T.tolist(), cut.weights_T.size, cut.num_cut_tokens) == (list(range(8)), 8, 5)
    assert cut_example(whole, 10).num_cut_tokens == 3

    dataset = streamed(lambda conversation: [example(conversation.source, 6, num_trained=4)])
    dataset.cut_to(4)
    batch = dataset.get_batch(0)
    assert batch.statistics.longest_tokens == 4
    assert all(datum.model_input.length == 3 for datum in batch.data_D)


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
