"""Values that take time to read: read in a thread, one at a time, and kept for a while."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cookhouse.server.refusals import message_of

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 0.3
"""How long who asks waits for a value at most; beyond it there is the one before, or none."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    value: T | None
    """None: it has not been read yet, or cannot be read."""
    age_seconds: float | None
    problem: str | None
    """Why the last attempt failed."""


class Cached(Generic[T]):
    """Lives on the event loop."""

    def __init__(self, read: Callable[[], T], *, seconds: float) -> None:
        """`read` blocks; it is called again after so many seconds, if somebody asks then."""
        self._read = read
        self._seconds = seconds
        self._reading: asyncio.Task[None] | None = None
        self._tried_at: float | None = None
        self._value: T | None = None
        self._read_at: float | None = None
        self._problem: str | None = None

    async def get(self, patience_seconds: float | None = None) -> Reading[T]:
        """The last reading: at most so many seconds old, unless reading takes longer or fails. `patience_seconds`: in
        place of `_PATIENCE_SECONDS`.
        """
        is_old = self._tried_at is None or time.monotonic() - self._tried_at >= self._seconds
        if self._reading is None and is_old:
            self._reading = asyncio.create_task(self._renew(), name="status")
        if self._reading is not None:
            patience = _PATIENCE_SECONDS if patience_seconds is None else patience_seconds
            await asyncio.wait([self._reading], timeout=patience)
        age = None if self._read_at is None else time.monotonic() - self._read_at
        return Reading(self._value, age, self._problem)

    async def _renew(self) -> None:
        try:
            self._value = await asyncio.to_thread(self._read)
            self._read_at, self._problem = time.monotonic(), None
        except Exception as error:
            if self._problem is None:
                _log.warning("what the status tells cannot be read: %s", error)
            self._problem = message_of(error)
        finally:
            self._tried_at = time.monotonic()
            self._reading = None
