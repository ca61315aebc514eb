"""Ctrl-C: the first asks the loop to stop after what is in flight, the second stops at once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupt:
    """A request to stop. While `deferred`, the loop looks at it between steps; otherwise it cancels the run's task."""

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self._on_request = on_request
        self._task: asyncio.Task[object] | None = None
        self._is_deferred = False
        self._requested = asyncio.Event()
        self.is_forced = False

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    async def requested(self) -> None:
        """Wait until someone asks to stop."""
        await self._requested.wait()

    def request(self) -> None:
        """Ask to stop; asked again, or where nothing waits to be finished, stop at once."""
        if self._is_deferred and not self.is_requested:
            self._requested.set()
            self._on_request()
            return
        self._requested.set()
        self.is_forced = True
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The body looks at `is_requested` itself, and stops when it is safe."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

    @contextmanager
    def on_sigint(self) -> Iterator[None]:
        """Take SIGINT while the body, run by the present task, runs; outside the main thread signals stay as they are.

        Raises:
            KeyboardInterrupt: the body was stopped at once.
        """
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        previous = signal.getsignal(signal.SIGINT)
        try:
            loop.add_signal_handler(signal.SIGINT, self.request)
        except (NotImplementedError, RuntimeError, ValueError):
            yield
            return
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_forced:
                raise
            raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, previous)
            self._task = None
