"""Waiting that says what it waits for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cookhouse.telemetry import Telemetry, events

_T = TypeVar("_T")


class Waiting:
    """Awaits requests, and reports `run.waiting` each time another `seconds` have passed without an answer."""

    def __init__(self, telemetry: Telemetry, seconds: float = 10.0) -> None:
        self._telemetry = telemetry
        self._seconds = seconds

    async def wait(
        self,
        awaitable: Awaitable[_T],
        what: str,
        *,
        step: int | None = None,
        progress: Callable[[], str] = lambda: "",
    ) -> _T:
        """The awaitable's result; `what` completes the sentence "still waiting for ...", and `progress` follows it."""
        start = time.monotonic()
        task = asyncio.ensure_future(awaitable)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._seconds)
                if not task.done():
                    waited = time.monotonic() - start
                    text = ": ".join(part for part in (what, progress()) if part)
                    self._telemetry.event(events.RUN_WAITING, step=step, metrics={"seconds": waited}, what=text)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
