"""Events on their way from the threads of a worker to the event loop that waits for them."""

import asyncio
import threading
from collections.abc import Sequence

from cookhouse.engine.contract import Event


class Outbox:
    """Put in from any thread; taken by one task at a time. Many that come at once wake the event loop once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False

    def put(self, events: Sequence[Event]) -> None:
        """Add events; after `close` they are dropped."""
        with self._lock:
            if not self._is_closed:
                self._events.extend(events)
                self._notify()

    def close(self) -> None:
        """Take nothing more; what is there can still be taken."""
        with self._lock:
            self._is_closed = True
            self._notify()

    async def take(self) -> Sequence[Event]:
        """Events since the last call; waits for at least one. Empty: closed, and no more will come."""
        while True:
            with self._lock:
                if self._events or self._is_closed:
                    taken, self._events = self._events, []
                    return taken
                self._waiter = asyncio.get_running_loop().create_future()
                waiter = self._waiter
            await waiter

    def _notify(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.get_loop().is_closed():
            waiter.get_loop().call_soon_threadsafe(_set, waiter)


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
