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
from types import TracebackType
from typing import Any, TypeVar
from unittest.mock import patch

_T = TypeVar("_T")
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
    """Waits for nothing, opens nothing, and has no threads: work for an executor is done at once."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._clock_resolution = _RESOLUTION_SECONDS

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002
        func: Callable[..., _T],
        *args: Any,
    ) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


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
