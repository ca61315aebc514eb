"""Interrupts: signals, limits of time and requests that stop a run before its end.

Ctrl-C, SIGTERM     the first asks the loop to stop after what is in flight, one a second later stops at once
SIGUSR1, limits     end the run at its next step, and never stop it at once: `Interrupt.end`
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # what stops services and containers is to save as Ctrl-C does
_END_SIGNAL = signal.SIGUSR1  # what batch queues send some time before they kill
_ONE_SECONDS = 1.0
"""A signal so soon after another is the same one: `timeout` sends it to the process, and then to its group."""


class Interrupt:
    """A request to stop. While `deferred`, the loop looks at it between steps; otherwise it cancels the run's task."""

    def __init__(self, on_request: Callable[[str | None], None] = lambda _: None) -> None:
        """`on_request` is called with a request that is granted: why, if a limit or SIGUSR1 made it."""
        self.on_request = on_request
        self.reason: str | None = None
        """Why the run ends, if a limit or SIGUSR1 came first."""
        self._signalled_seconds: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._num_deferring = 0
        self._requested = asyncio.Event()
        self._leaving: set[asyncio.Task[object]] = set()  # which `end` cancels
        self._left: set[asyncio.Task[object]] = set()
        self.is_asked = False
        """Whether somebody pressed Ctrl-C, or sent SIGTERM."""
        self.is_forced = False

    @property
    def is_taken(self) -> bool:
        """True if a run listens to it already, of which another one is a part."""
        return self._task is not None

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    async def requested(self) -> None:
        """Wait until someone asks to stop."""
        await self._requested.wait()

    def request(self) -> None:
        """Ask to stop; asked again, or where nothing waits to be finished, stop at once."""
        is_first, self.is_asked = not self.is_asked, True
        self._requested.set()
        if self._num_deferring and is_first:
            self.on_request(None)
            return
        self._force()

    def stop_if_asked(self) -> None:
        """Stop at once where somebody asked to stop, and nothing waits to be finished any more."""
        if self.is_asked and not self._num_deferring:
            self._force()

    def _force(self) -> None:
        self.is_forced = True
        if self._task is not None:
            self._task.cancel()

    def end(self, reason: str) -> None:
        """Ask to stop at the next step, or where a body may be left. Asked again, it changes nothing."""
        if self.is_requested:
            return
        self.reason = reason
        self._requested.set()
        self.on_request(reason)
        if not self._num_deferring:
            self._left = set(self._leaving)
            for task in self._left:
                task.cancel()

    @contextmanager
    def left_at_end(self) -> Iterator[None]:
        """`end` leaves the body, run by the present task, at once, unless something is deferred."""
        task = asyncio.current_task()
        assert task is not None
        self._leaving.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._left or task.uncancel():
                raise
        finally:
            self._leaving.discard(task)

    @contextmanager
    def after(self, minutes: float | None) -> Iterator[None]:
        """`end` what is done in the body when it has gone on for so many minutes; None: it may take its time."""
        if minutes is None:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(60 * minutes, self.end, f"the time is over: max_minutes={minutes:g}")
        try:
            yield
        finally:
            timer.cancel()

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
        """Take SIGINT, SIGTERM and SIGUSR1 while the body, run by the present task, runs; once it was stopped at once,
        the next of the first two ends the process as if nobody took it. Outside the main thread signals stay as they
        are.

        Raises:
            KeyboardInterrupt: the body was stopped at once.
        """
        if self._task is not None:  # a run within a run: the outer one takes them
            yield
            return
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def take(number: int, frame: FrameType | None) -> None:
            # Not the loop's own handler: that is called when the loop has time, and no longer knows when it came.
            del frame
            if self.hear_signal():
                if self.is_forced:
                    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
                    signal.raise_signal(number)
                loop.call_soon_threadsafe(self.request)

        def take_end(number: int, frame: FrameType | None) -> None:
            del number, frame
            loop.call_soon_threadsafe(self.end, "SIGUSR1 came")

        handlers = {**dict.fromkeys(_SIGNALS, take), _END_SIGNAL: take_end}
        previous = {number: signal.getsignal(number) for number in handlers}
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
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
            for number, before in previous.items():
                signal.signal(number, before)
            self._task = None
