"""How busy a worker is, from what it says and when it said so."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cookhouse.engine.contract import MemoryUse, TurnCount, WorkerStatus
from cookhouse.server.status.worker_watch import Seen, WorkerWatch


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """In place of a worker's handle: answers that a test gives, or never."""

    is_up = True
    life = SimpleNamespace(num_losses=0)

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Any]] = []

    def ask(self, *_: object) -> "asyncio.Future[Any]":
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


def busy_for(seconds: float) -> WorkerStatus:
    return WorkerStatus(
        turn=None,
        turn_seconds=0.0,
        running=(),
        num_running=0,
        turns=(TurnCount("train", 1, seconds),),
        resident_bytes=None,
        memory=MemoryUse(),
    )


@pytest.mark.anyio
async def test_a_worker_that_hangs_is_not_busy_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a worker that answers no more, and keeps the share of its last answers."""
    clock, asked = Clock(), Asked()
    monkeypatch.setattr("cookhouse.server.status.worker_watch.time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("cookhouse.server.status.worker_watch._PATIENCE_SECONDS", 0.0)
    worker: Any = asked
    watch = WorkerWatch(worker)

    async def look(busy_seconds: float | None) -> Seen:
        await watch.look()
        if busy_seconds is not None:
            asked.answers[-1].set_result(busy_for(busy_seconds))
            await asyncio.sleep(0)
        return await watch.look()

    assert (await look(0.0)).utilization is None
    clock.now += 10
    assert (await look(9.7)).utilization == pytest.approx(0.97)
    clock.now += 60
    assert (await look(None)).utilization == pytest.approx(0.97)
    clock.now += 100
    seen = await look(None)
    assert seen.utilization is None
    assert seen.silent_seconds == 160.0
