"""A worker without a thread: the real loop over a simulated engine, whose turns take the time of the event loop.

On a virtual event loop nothing waits, and all of it is the same for the same commands at the same times. On a real one
the worker sleeps.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from cookhouse.engine.contract import Command, Event, Failure, Lost, Up, WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.transports.outbox import Outbox
from cookhouse.engine.worker.loop import Loop

_T = TypeVar("_T")
MakeEngine = Callable[[Callable[[float], None]], Engine]
"""Makes an engine that calls what it is given with the seconds that its work takes."""


class Simulated:
    """Implements `Worker`. It starts when its events are first asked for, on the event loop that asks."""

    def __init__(self, make_engine: MakeEngine, options: WorkerOptions, *, write_seconds: float = 0.0) -> None:
        """`write_seconds`: what the files of a save take, while the engine goes on."""
        self._make_engine = make_engine
        self._write_seconds = write_seconds
        self._options = options
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._early: list[Command] = []
        """Commands that came before there was an engine."""
        self._loop: Loop | None = None
        self._told: list[Event] = []
        """By the present turn, which is not over yet."""
        self._turn_seconds = 0.0
        self._life: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._writers: list[_Later] = []
        self._end: BaseException | None = None
        """What ended it while it wrote."""

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Worker`."""
        if self._loop is None:
            self._early.extend(commands)
        else:
            self._loop.submit(commands)

    async def events(self) -> Sequence[Event]:
        """See `Worker`."""
        if self._life is None:
            self._life = asyncio.create_task(self._live(), name=f"worker {self._options.worker}")
        return await self._outbox.take()

    async def close(self, seconds: float) -> bool:
        """See `Worker`."""
        self._is_stopping = True
        self._wake.set()
        done, _ = await asyncio.wait([self._life], timeout=seconds) if self._life is not None else ({None}, ())
        self._outbox.close()
        return bool(done)

    async def _live(self) -> None:
        try:
            loop = self._loop = self._open()
            await self._pass_time()
            while not self._is_stopping:
                self._wake.clear()
                if self._end is not None:
                    raise self._end
                if loop.turn():
                    await self._pass_time()
                else:
                    self._tell_all()
                    await self._wake.wait()
            loop.close()
            self._tell_all()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # What the unfinished turn would have told is lost with the worker.
            failure = Failure.of(error) if self._loop is None else None
            self._outbox.put([Lost(worker=self._options.worker, reason=str(error), failure=failure)])
            self._outbox.close()
        finally:
            for writer in self._writers:
                writer.shutdown()

    def _open(self) -> Loop:
        engine = self._make_engine(self._spend)
        loop = Loop(
            engine,
            self._options,
            tell=self._told.extend,
            wake=self._wake.set,
            clock=self._clock,
            make_writer=self._make_writer,
        )
        up = Up(
            worker=self._options.worker,
            base_models=tuple(engine.base_models()),
            description=engine.describe(),
            room=loop.room,
        )
        self._told.append(up)
        loop.submit(self._early)
        return loop

    def _make_writer(self, name: str) -> Executor:
        if not self._write_seconds or name != "saves":  # for the others the engine waits where it stands
            return _AtOnce()
        writer = _Later(self._write_seconds, self._lose)
        self._writers.append(writer)
        return writer

    def _lose(self, error: BaseException) -> None:
        self._end = error
        self._wake.set()

    def _spend(self, seconds: float) -> None:
        self._turn_seconds += seconds

    def _clock(self) -> float:
        return asyncio.get_running_loop().time() + self._turn_seconds

    async def _pass_time(self) -> None:
        """Let the turn last as long as it took, and tell what came of it."""
        seconds, self._turn_seconds = self._turn_seconds, 0.0
        await asyncio.sleep(seconds)
        self._tell_all()

    def _tell_all(self) -> None:
        if self._told:
            self._outbox.put(list(self._told))
            self._told.clear()


class _AtOnce(Executor):
    """Does what it is given before it returns."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _Later(Executor):
    """Does one thing after the other, each when its time is over; after `shutdown` nothing more."""

    def __init__(self, seconds: float, lose: Callable[[BaseException], None]) -> None:
        """`lose` is given what ends the whole worker."""
        self._seconds = seconds
        self._lose = lose
        self._free_at = 0.0
        self._is_shut_down = False

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + self._seconds
        loop.call_at(self._free_at, self._do, future, partial(fn, *args, **kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        self._is_shut_down = True

    def _do(self, future: Future[_T], work: Callable[[], _T]) -> None:
        if self._is_shut_down:
            return
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:
            self.shutdown()
            self._lose(error)
