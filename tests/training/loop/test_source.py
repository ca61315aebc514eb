"""Order of work, and where a resumed source goes on."""

import asyncio
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.training import Assembled, BatchSource, as_datums
from cookhouse.weights.checkpoints import Cursor

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


async def all_cursors(source: BatchSource[Any, Any]) -> list[tuple[int, int, int]]:
    cursors = []
    while (work := await source.next_work()) is not None:
        cursors.append((work.cursor.epoch, work.cursor.batch, work.cursor.step))
    await source.aclose()
    return cursors


async def test_epochs_follow_one_another_up_to_the_last_step() -> None:
    dataset = Numbered()
    assert await all_cursors(BatchSource(dataset, as_datums, total_steps=5, steps_per_epoch=2)) == [
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
    source = BatchSource(dataset, as_datums, total_steps=5, steps_per_epoch=2, cursor=cursor)
    assert await all_cursors(source) == [(1, 1, 3), (2, 0, 4)]
    assert dataset.asked[:2] == [("epoch", 1), ("batch", 1)]


async def test_cursor_is_the_next_work_although_it_is_prepared_already() -> None:
    source = BatchSource(Numbered(), as_datums, total_steps=5, steps_per_epoch=2)
    work = await source.next_work()
    await asyncio.sleep(0)
    assert work is not None
    assert source.cursor == Cursor(epoch=0, batch=1, step=1)
    await source.aclose()


async def test_closing_early_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    source = BatchSource(Numbered(), as_datums, total_steps=5, steps_per_epoch=2)
    await source.next_work()
    await source.aclose()
    assert asyncio.all_tasks() == before


class Ahead:
    """An assembler whose second batch waits until it may end."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.is_waiting, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_ended = False

    async def __call__(self, batch: list[Any]) -> Assembled[str]:
        self.num_begun += 1
        number = self.num_begun
        if number == 2:
            self.is_waiting.set()
            try:
                await self.may_end.wait()
            finally:
                self.is_ended = True
        return Assembled(data_D=batch, payload=f"batch {number}", metrics={"number": float(number)})


async def test_the_next_batch_is_assembled_while_one_is_trained_on() -> None:
    # Catches an assembler that is called only when its batch is asked for: training would wait for what it waits for.
    assemble = Ahead()
    source = BatchSource(Numbered(), assemble, total_steps=5, steps_per_epoch=2)
    first = await source.next_work()
    async with asyncio.timeout(60):  # instead of for ever, where it is not called ahead
        await assemble.is_waiting.wait()
    assert assemble.num_begun == 2
    assemble.may_end.set()
    second = await source.next_work()
    assert first is not None
    assert second is not None
    assert (first.payload, first.metrics) == ("batch 1", {"number": 1.0})
    assert (second.payload, second.metrics) == ("batch 2", {"number": 2.0})
    await source.aclose()


async def test_closing_cancels_an_assembler_that_waits() -> None:
    # Catches an interrupt that waits for what an assembler has asked the service, and requests that go on after it.
    before = asyncio.all_tasks()
    assemble = Ahead()
    source = BatchSource(Numbered(), assemble, total_steps=5, steps_per_epoch=2)
    await source.next_work()
    async with asyncio.timeout(60):
        await assemble.is_waiting.wait()
        assert not assemble.is_ended
        await source.aclose()
    assert assemble.is_ended
    assert asyncio.all_tasks() == before


async def test_a_batch_that_hangs_on_the_weights_is_made_once_it_is_asked_for() -> None:
    """Catches answers of older weights than those of the step that they are trained in."""
    made: list[int] = []

    async def assemble(batch: Any) -> Assembled[None]:
        made.append(len(made))
        return await as_datums(batch)

    source = BatchSource(Numbered(), assemble, total_steps=3, steps_per_epoch=2, ahead=False)
    for number in range(3):
        assert source.needs_answers
        assert await source.next_work() is not None
        await asyncio.sleep(0.01)
        assert made == list(range(number + 1))
    assert await source.next_work() is None


class Remembers(Numbered):
    """Counts its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def get_batch(self, index: int) -> Any:
        self.seen.append(index)
        return super().get_batch(index)

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Any) -> None:
        self.seen = list(state["seen"])


@pytest.mark.parametrize("ahead", [False, True])
async def test_what_a_data_set_remembers_is_part_of_the_place_and_comes_back(ahead: bool) -> None:
    """Catches a resume that begins with an empty memory, and a memory saved with the batch made ahead in it."""
    source = BatchSource(Remembers(), as_datums, total_steps=4, steps_per_epoch=2, ahead=ahead)
    await source.next_work()
    saved = source.cursor
    await source.next_work()
    await source.aclose()
    assert (saved.step, saved.loop_state) == (1, {"seen": [0]})
    resumed = Remembers()
    BatchSource(resumed, as_datums, total_steps=4, steps_per_epoch=2, cursor=saved)
    assert resumed.seen == [0]


async def test_a_memory_that_cannot_be_saved_is_refused() -> None:
    class Odd(Remembers):
        def state(self) -> dict[str, Any]:
            return {"seen": {1, 2}}

    source = BatchSource(Odd(), as_datums, total_steps=4, steps_per_epoch=2)
    with pytest.raises(InputError, match=r"state\(\) of Odd cannot be saved with a checkpoint"):
        await source.next_work()
    await source.aclose()
