import asyncio
import os
import signal

import pytest

from cookhouse.training import Interrupt

pytestmark = pytest.mark.anyio


async def _press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.05)


async def test_first_ctrl_c_asks_and_second_stops_at_once() -> None:
    told: list[str] = []
    interrupt = Interrupt(on_request=lambda: told.append("asked"))

    async def body() -> None:
        with interrupt.on_signals(), interrupt.deferred():
            await _press()
            assert interrupt.is_requested
            assert told == ["asked"]
            await _press()
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
