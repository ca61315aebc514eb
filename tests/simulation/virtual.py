"""A world in which time is a number: an event loop that jumps to its next timer, and clocks and ids that repeat.

with World(seed=7) as world:
    world.run(main())
"""

import asyncio
import random
import secrets
import selectors
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar
from unittest.mock import patch

from tests.simulation.processes import of_context

_T = TypeVar("_T")
_Handle = TypeVar("_Handle", bound=asyncio.Handle)
_BEGIN_SECONDS = 1_000_000_000.0
"""Since the epoch."""
_RESOLUTION_SECONDS = 1e-6
"""Above what a double of some months is rounded to: else a timer could stand before its time for ever."""


class StuckError(RuntimeError):
    """Everybody waits, and no timer will ever wake anybody."""


class _Selector(selectors.SelectSelector):
    """Lets the loop's time pass instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise StuckError("everybody waits for somebody else, and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Waits for nothing, opens nothing, and has no threads: work for an executor is done at once, or, in a `Process`,
    when its disk has taken its time.
    """

    def __init__(self) -> None:
        self._clock = _Selector()
        self._free_at: dict[object, float] = {}
        """By executor: when it is done with what it has been given."""
        super().__init__(self._clock)
        self._clock_resolution = _RESOLUTION_SECONDS

    def time(self) -> float:
        return self._clock.now

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = super().create_task(coro, **options)
        process = of_context(options.get("context"))
        if process is not None:
            process.tasks.add(task)
            if not process.is_alive:
                coro.close()
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return _unless_dead(super().call_soon(callback, *args, context=context), context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return _unless_dead(super().call_at(when, callback, *args, context=context), context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,
        func: Callable[..., _T],
        *args: Any,
    ) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.create_future()
        process = of_context(None)
        seconds = 0.0 if process is None else process.disk.seconds()
        if not seconds:
            self._work(future, func, args)
            return future
        done_at = self.time() + seconds
        if executor is not None:  # it does one thing after the other
            done_at = self._free_at[executor] = max(done_at, self._free_at.get(executor, 0.0))
        self.call_at(done_at, self._work, future, func, args)
        return future

    def _work(self, future: asyncio.Future[_T], func: Callable[..., _T], args: tuple[Any, ...]) -> None:
        process = of_context(None)
        if process is not None:
            process.disk.before()
            if not process.is_alive:
                return
        try:
            result = func(*args)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        if process is not None:
            process.disk.after()


def _unless_dead(handle: _Handle, context: Context | None) -> _Handle:
    """A callback of a process that has been killed is never called."""
    process = of_context(context)
    if process is not None and not process.is_alive:
        handle.cancel()
    return handle


class World:
    """While it is entered, `time`, `uuid` and `secrets` are its own, and what runs in it is the same for one seed."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self._random = random.Random(f"ids of {seed}")
        self._patches = ExitStack()

    def __enter__(self) -> "World":
        ids = self._random
        for module, name, ours in (
            (time, "time", lambda: _BEGIN_SECONDS + self.loop.time()),
            (time, "monotonic", self.loop.time),
            (time, "perf_counter", self.loop.time),
            (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
            (secrets, "token_hex", lambda num_bytes=32: ids.randbytes(num_bytes).hex()),
            (secrets, "randbits", ids.getrandbits),
        ):
            self._patches.enter_context(patch.object(module, name, ours))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._patches.close()
        self.loop.close()

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end, and cancel what is left over."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(main)
