"""Catches a simulation that waits in real time, hangs, or runs otherwise the second time."""

import asyncio
import secrets
import time
import uuid

import pytest

from tests.simulation.virtual import StuckError, World


async def _a_day_of_clients() -> list[tuple[str, float]]:
    heard = []

    async def client(name: str, seconds: float) -> None:
        for _ in range(100):
            await asyncio.sleep(seconds)
            heard.append((name, time.monotonic()))

    await asyncio.gather(client("slow", 864.0), client("fast", 7.0))
    return heard


def test_time_passes_in_jumps_and_in_order() -> None:
    with World(1) as world:
        start = time.monotonic()
        heard = world.run(_a_day_of_clients())
    assert heard == sorted(heard, key=lambda each: each[1])
    assert [at - start for name, at in heard if name == "slow"] == pytest.approx([864.0 * n for n in range(1, 101)])


def test_waiting_for_nobody_is_an_error() -> None:
    """Would hang for ever otherwise."""
    with World(1) as world, pytest.raises(StuckError):
        world.run(asyncio.Event().wait())


def test_ids_repeat_from_the_seed_and_clocks_come_back() -> None:
    def ids(seed: int) -> list[object]:
        with World(seed):
            return [uuid.uuid4(), secrets.token_hex(12), secrets.randbits(31), time.time()]

    assert ids(3) == ids(3)
    assert ids(3) != ids(4)
    assert time.time() > 1_700_000_000
    assert uuid.uuid4() != uuid.uuid4()


def test_work_for_threads_is_done_at_once_in_the_loop() -> None:
    """A thread would take real time, and end in any order."""
    import threading

    async def main() -> list[int]:
        async def refuse() -> None:
            raise ValueError

        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return [await asyncio.to_thread(threading.get_ident), threading.get_ident()]

    with World(1) as world:
        there, here = world.run(main())
    assert there == here
