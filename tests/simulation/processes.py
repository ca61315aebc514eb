"""Processes of a virtual world: what runs in one ends where it stands when it is killed, and cleans nothing up."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

_T = TypeVar("_T")
_current: ContextVar["Process | None"] = ContextVar("process", default=None)


class KilledError(Exception):
    """The process died before it answered."""


class Process:
    """A server's: its tasks, its timers, and the disk that it works on."""

    def __init__(self, disk: "Disk") -> None:
        self.disk = disk
        self.is_alive = True
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.killed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: list[asyncio.Task[Any]] = []
        """Tasks that were under way: they are kept, since one that is collected would clean up."""
        self._context = copy_context()
        self._context.run(_current.set, self)

    def call(self, work: Callable[[], _T]) -> _T:
        """Do something in the process that waits for nothing."""
        return self._context.run(work)

    def start(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Begin something in the process, which may wait; for who waits for it beside `killed`."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def ask(self, work: Coroutine[Any, Any, _T], patience: float | None = None) -> _T:
        """What something in the process gives. It goes on there when the caller does not wait any more.

        Raises:
            KilledError: the process died first.
            TimeoutError: it took longer than `patience`.
        """
        if not self.is_alive:
            work.close()
            raise KilledError
        task = self.start(work)
        task.add_done_callback(_look)
        futures: set[asyncio.Future[Any]] = {task, self.killed}
        done, _ = await asyncio.wait(futures, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
        if not done:
            raise TimeoutError
        raise KilledError

    def kill(self) -> None:
        """End it between two callbacks of its event loop, or at the end of the present one."""
        if not self.is_alive:
            return
        self.is_alive = False
        loop: Any = asyncio.get_running_loop()
        for handle in [*loop._ready, *loop._scheduled]:
            if of_context(handle._context) is self:
                handle.cancel()
        self._left = [task for task in self.tasks if not task.done()]
        for task in self._left:
            _forget(task)
        self.killed.set_result(None)

    def bury(self) -> None:
        """Let go of what was under way, at the end of the world: what it does then reaches no disk."""
        left, self._left = self._left, []
        for task in left:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010
            with suppress(BaseException):
                self._context.copy().run(task.get_coro().close)
        for task in self.tasks:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010
            _forget(task)


class Disk:
    """How long blocking work takes, and what goes wrong beside it."""

    def seconds(self) -> float:
        """Of one piece of work."""
        return 0.0

    def before(self) -> None:
        """Called before a piece of work, in the process: may kill it."""

    def after(self) -> None:
        """The same after it, before anybody has been told what came of it."""


def of_context(context: Context | None) -> Process | None:
    """The process that a context belongs to; of None: that of the running one."""
    return _current.get() if context is None else context.get(_current)


def _forget(task: "asyncio.Task[Any]") -> None:
    asyncio.tasks._unregister_task(task)


def _look(task: "asyncio.Task[Any]") -> None:
    """Take note of a failure that nobody waits for."""
    if not task.cancelled():
        task.exception()
