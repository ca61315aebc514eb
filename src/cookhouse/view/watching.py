"""Watchers of runs: one poller for all pages, which asks the file system and wakes the streams of what has changed.

It rests while nobody looks, and never works more than a tenth of the time.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

from starlette.concurrency import run_in_threadpool

_log = logging.getLogger(__name__)
_INTERVAL_SECONDS: Final = 1.0
_RESTS_PER_WORK: Final = 9
_BEAT_SECONDS: Final = 15.0
_UNREAD: Final = object()
T = TypeVar("T")


class Look(Generic[T]):
    """Object that some streams look at, as it was last read; it is read before any stream is notified."""

    def __init__(self, read: Callable[[], T]) -> None:
        self.is_over = False
        self.num_streams = 0
        self._read = read
        self._value: Any = _UNREAD
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()

    async def values(self) -> AsyncIterator[T | None]:
        """The value now and each time it changes; None where it has not for a while. It ends with the server."""
        while not self.is_over:
            woken = self._woken
            yield self._value
            while not woken.is_set():
                try:
                    await asyncio.wait_for(woken.wait(), _BEAT_SECONDS)
                except TimeoutError:
                    yield None

    async def refresh(self) -> None:
        """Read again, and wake the streams if that is another value."""
        async with self._turn:  # of two readings the one that began later holds
            value = await run_in_threadpool(self._read)
            if value != self._value:
                self._value = value
                self._wake()

    def end(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()


class Watcher:
    """Of one server."""

    def __init__(self, interval_seconds: float = _INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._looks: dict[Hashable, Look[Any]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._is_over = False

    @asynccontextmanager
    async def looking(self, at: Hashable, read: Callable[[], T]) -> AsyncIterator[Look[T]]:
        """Look at something for as long as the block lasts, from its value at the beginning on: the page that begins to
        look was made a moment ago. `read` gives that, blocking; who looks at the same thing shares it.
        """
        look: Look[T] = self._looks.setdefault(at, Look(read))
        look.num_streams += 1
        look.is_over = self._is_over
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            await look.refresh()
            yield look
        finally:
            look.num_streams -= 1
            if not look.num_streams:
                self._looks.pop(at, None)

    def end(self) -> None:
        """End all streams: a server that stops waits for them."""
        self._is_over = True
        for look in self._looks.values():
            look.end()

    async def _poll(self) -> None:
        try:
            while self._looks and not self._is_over:
                began = time.monotonic()
                for look in [*self._looks.values()]:
                    await _refreshed(look)
                worked = time.monotonic() - began
                await asyncio.sleep(max(self._interval_seconds, _RESTS_PER_WORK * worked))
        finally:
            self._poller = None


async def _refreshed(look: Look[Any]) -> None:
    """Read again; who looks at what cannot be read asks again, and nobody else is notified."""
    try:
        await look.refresh()
    except Exception:  # whatever the files of one run do to us: the others are watched on
        _log.exception("what is looked at cannot be read; its pages ask again")
        look.end()
