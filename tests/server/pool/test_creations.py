"""Catches a model that is tried twice at one worker, or at one that leaves, and commands that lose their model."""

import asyncio

import pytest
from tests.server.pool.conftest import MakeWorkers
from tests.server.pool.scripted import create, step

from cookhouse.engine.contract import CanceledError, Command, NoMemoryError
from cookhouse.errors import InputError
from cookhouse.server.pool.creations import Creation, Creations
from cookhouse.server.pool.pending import PendingCommand

pytestmark = pytest.mark.anyio
FULL = NoMemoryError("full")


def call(command: Command) -> PendingCommand:
    return PendingCommand(command=command, answer=asyncio.get_running_loop().create_future())


async def test_workers_are_tried_one_after_the_other(make_workers: MakeWorkers) -> None:
    first, second, third = make_workers(workers=3)
    creations = Creations()
    creations.begin("m", call(create("m")), [first, second, third])
    behind = call(step("1", "m"))
    assert creations.wait("m", behind)
    assert not creations.wait("other", behind)
    assert creations.next("m", first, FULL) is second
    assert creations.next("m", first, FULL) is None  # it has been refused there already
    third.is_draining = True
    failed = creations.next("m", second, FULL)
    assert isinstance(failed, Creation)
    assert str(failed.call.refusal()) == "no worker has room: worker0: full; worker1: full"
    assert creations.end("m") == [behind]
    assert creations.end("m") == []
    assert len(creations) == 0


async def test_only_memory_is_another_workers_matter(make_workers: MakeWorkers) -> None:
    first, second = make_workers(workers=2)
    creations = Creations()
    creations.begin("m", call(create("m")), [first, second])
    assert creations.next("m", first, InputError("a bad rank")) is None
    assert creations.next("unknown", first, FULL) is None


async def test_a_model_that_was_moved_goes_on_at_another_worker(make_workers: MakeWorkers) -> None:
    """Would catch a model that ends since it was moved to where it cannot be loaded."""
    first, second, third = make_workers(workers=3)
    creations = Creations()
    creations.begin("m", call(create("m")), [first, second, third], is_move=True)
    assert creations.next("m", first, InputError("no such file")) is second
    assert creations.next("m", second, InputError("no such file")) is None, "nor was it there before"
    creations.begin("other", call(create("other")), [first, second], is_move=True)
    assert creations.next("other", first, CanceledError("its session has ended")) is None


async def test_with_one_worker_nothing_waits(make_workers: MakeWorkers) -> None:
    """Would catch a step that is sent a round trip later than it could be."""
    creations = Creations()
    creations.begin("m", call(create("m")), make_workers())
    assert not creations.wait("m", call(step("1", "m")))
