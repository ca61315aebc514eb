"""Order of work, and where a resumed source goes on."""

import asyncio
from typing import Any

import pytest

from cookhouse.training import Cursor, SupervisedSource

pytestmark = pytest.mark.anyio


class Numbered:
    """Two batches per epoch; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def set_epoch(self, epoch: int) -> None:
        self.asked.append(("epoch", epoch))

    def get_batch(self, index: int) -> list[Any]:
        self.asked.append(("batch", index))
        return []

    def __len__(self) -> int:
        return 2


async def all_cursors(source: SupervisedSource) -> list[tuple[int, int, int]]:
    cursors = []
    while (work := await source.next_work()) is not None:
        cursors.append((work.cursor.epoch, work.cursor.batch, work.cursor.step))
    await source.aclose()
    return cursors


async def test_epochs_follow_one_another_up_to_the_last_step() -> None:
    dataset = Numbered()
    assert await all_cursors(SupervisedSource(dataset, total_steps=5)) == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 2),
        (1, 1, 3),
        (2, 0, 4),
    ]
    assert dataset.asked == [
        ("epoch", 0), ("batch", 0), ("batch", 1),
        ("epoch", 1), ("batch", 0), ("batch", 1),
        ("epoch", 2), ("batch", 0),
    ]  # fmt: skip


async def test_resumed_source_sets_its_epoch_before_its_first_batch() -> None:
    # Catches a resume in the middle of an epoch that reads the batches of epoch 0.
    dataset = Numbered()
    cursor = Cursor(epoch=1, batch=1, step=3)
    assert await all_cursors(SupervisedSource(dataset, total_steps=5, cursor=cursor)) == [(1, 1, 3), (2, 0, 4)]
    assert dataset.asked[:2] == [("epoch", 1), ("batch", 1)]


async def test_cursor_is_the_next_work_although_it_is_prepared_already() -> None:
    source = SupervisedSource(Numbered(), total_steps=5)
    work = await source.next_work()
    await asyncio.sleep(0)
    assert work is not None
    assert source.cursor == Cursor(epoch=0, batch=1, step=1)
    await source.aclose()


async def test_closing_early_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    source = SupervisedSource(Numbered(), total_steps=5)
    await source.next_work()
    await source.aclose()
    assert asyncio.all_tasks() == before
