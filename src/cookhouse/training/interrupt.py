"""Ctrl-C and SIGTERM: the first asks the loop to stop after what is in flight, one a second later stops at once."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # what stops services and containers is to save as Ctrl-C does
_ONE_SECONDS = 1.0
"""A signal so soon after another is the same one: `timeout` sends it to the process, and then to its group."""


class Interrupt:
    """A request to stop. While `deferred`, the loop looks at it between steps; otherwise it cancels the run's task."""

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.on_request = on_request
        self._signalled_seconds: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._num_deferring = 0
        self._requested = asyncio.Event()
        self.is_forced = False

    @property
    def is_taken(self) -> bool:
        """Whether a run listens to it already, of which another one is a part."""
        return self._task is not None

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    async def requested(self) -> None:
        """Wait until someone asks to stop."""
        await self._requested.wait()

    def request(self) -> None:
        """Ask to stop; asked again, or where nothing waits to be finished, stop at once."""
        if self._num_deferring and not self.is_requested:
            self._requested.set()
            self.on_request()
            return
        self._requested.set()
        self.is_forced = True
        if self._task is not None:
            self._task.cancel()

    def hear_signal(self) -> bool:
        """Note that a signal has come; whether it is another one than the last."""
        now, last = time.monotonic(), self._signalled_seconds
        if last is not None and now - last < _ONE_SECONDS:
            return False
        self._signalled_seconds = now
        return True

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The body looks at `is_requested` itself, and stops when it is safe. Several may at a time."""
        self._num_deferring += 1
        try:
            yield
        finally:
            self._num_deferring -= 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM while the body, run by the present task, runs; once it was stopped at once, the next
        ends the process as if nobody took it. Outside the main thread signals stay as they are.

        Raises:
            KeyboardInterrupt: the body was stopped at once.
        """
        if self._task is not None:  # a run within a run: the outer one takes them
            yield
            return
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def take(number: int, frame: FrameType | None) -> None:
            # Not the loop's own handler: that is told when the loop has time, and no longer knows when it came.
            del frame
            if self.hear_signal():
                if self.is_forced:
                    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
                    signal.raise_signal(number)
                loop.call_soon_threadsafe(self.request)

        previous = {number: signal.getsignal(number) for number in _SIGNALS}
        try:
            for number in _SIGNALS:
                signal.signal(number, take)
        except ValueError:
            yield
            return
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_forced:
                raise
            raise KeyboardInterrupt from None
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._task = None
