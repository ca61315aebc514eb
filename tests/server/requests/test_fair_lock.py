"""Catches a tenant whose calls wait for all those of another, and a turn that nobody ends."""

import asyncio

import pytest

from cookhouse.server.requests.fair_lock import FairLock


async def begun(order: list[str], lock: FairLock, names: list[str]) -> list[asyncio.Task[None]]:
    """Calls that wait behind each other; the letter of a name is its owner."""

    async def call(name: str) -> None:
        async with lock.hold(name[0]):
            order.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(call(name)) for name in names]
    await asyncio.sleep(0)
    return tasks


def test_owners_take_turns_and_each_ones_calls_keep_their_order() -> None:
    async def main() -> list[str]:
        order: list[str] = []
        tasks = await begun(order, FairLock(), ["a1", "a2", "a3", "a4", "b1", "b2", "c1"])
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(main()) == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_call_that_is_given_up_keeps_nobody_waiting(gone: int) -> None:
    """Would catch a client that disconnects, and leaves the server reading nobody's requests."""

    async def main() -> list[str]:
        order: list[str] = []
        tasks = await begun(order, FairLock(), ["a1", "a2", "b1", "b2"])
        tasks[gone].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert [name for name in asyncio.run(main()) if name != ["a1", "a2", "b1"][gone]] == [
        name for name in ["a1", "a2", "b1", "b2"] if name != ["a1", "a2", "b1"][gone]
    ]


def test_a_call_that_is_given_up_as_its_turn_comes_passes_it_on() -> None:
    async def main() -> list[str]:
        order: list[str] = []
        lock = FairLock()
        async with lock.hold("x"):
            tasks = await begun(order, lock, ["a1", "b1"])
        tasks[0].cancel()  # it has its turn, and does not know yet
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(main()) == ["b1"]
