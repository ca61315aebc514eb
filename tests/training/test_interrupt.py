import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from cookhouse.training import Interrupt

pytestmark = pytest.mark.anyio


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how far apart signals have to be, in seconds, to be two."""
    return lambda seconds: monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", seconds)


async def _press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.05)


async def test_first_ctrl_c_asks_and_second_stops_at_once(apart: Callable[[float], None]) -> None:
    apart(0)
    told: list[str] = []
    interrupt = Interrupt(on_request=lambda _: told.append("asked"))

    async def body() -> None:
        with interrupt.on_signals(), interrupt.deferred():
            await _press()
            assert interrupt.is_requested
            assert told == ["asked"]
            await _press()
            pytest.fail("the second Ctrl-C did not stop the body")

    with pytest.raises(KeyboardInterrupt):
        await body()


async def test_signals_that_come_together_are_one(apart: Callable[[float], None]) -> None:
    """`timeout` sends SIGTERM to the process, and then to its group, which the process is in."""
    apart(3600)
    told: list[str] = []
    interrupt = Interrupt(on_request=lambda _: told.append("asked"))
    with interrupt.on_signals(), interrupt.deferred():
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
        assert told == ["asked"]
        assert not interrupt.is_forced


async def test_signals_together_stop_a_body_that_defers_nothing_and_do_not_kill_what_it_cleans_up(
    apart: Callable[[float], None],
) -> None:
    apart(3600)
    interrupt, cleaned = Interrupt(), []

    async def body() -> None:
        with interrupt.on_signals():
            try:
                await _press()
            finally:
                await _press()
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        await body()
    assert cleaned


async def test_signals_apart_are_two_even_if_the_loop_hears_of_them_at_once(apart: Callable[[float], None]) -> None:
    apart(0.01)
    interrupt = Interrupt()

    async def body() -> None:
        with interrupt.on_signals(), interrupt.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.02)  # noqa: ASYNC251  it is the loop that is busy
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
            pytest.fail("the second Ctrl-C did not stop the body")

    with pytest.raises(KeyboardInterrupt):
        await body()


async def test_ctrl_c_where_nothing_is_deferred_stops_at_once() -> None:
    interrupt = Interrupt()

    async def body() -> None:
        with interrupt.on_signals():
            await _press()
            pytest.fail("Ctrl-C did not stop the body")

    with pytest.raises(KeyboardInterrupt):
        await body()


async def test_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt().on_signals():
        pass
    assert signal.getsignal(signal.SIGINT) is before
