"""The local sandbox: a pool of warm workers on this machine."""

import asyncio
import atexit
import concurrent.futures
import functools
import logging
import os
import queue
import shutil
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from cookhouse.errors import InputError, ServiceError
from cookhouse.grading.sandbox.isolation import Isolation, IsolationMethod, check_weak_isolation, possible_methods
from cookhouse.grading.sandbox.sandbox import Execution, ExecutionOutcome, Limits, Program
from cookhouse.grading.sandbox.warm_worker import WarmWorker, WorkerEndedError

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_MAX_DEFAULT_WORKERS = 32
_LOST = Execution(outcome=ExecutionOutcome.KILLED, status=None, stdout=b"", stderr=b"", seconds=0.0)


class LocalSandbox:
    """Up to `num_workers` programs at a time, each in a forked child of a worker that has Python loaded.

    `num_workers=None` is one for each core this process may use, up to 32; a worker takes about 15 MB, and as much
    again once it runs pairs. Workers start with the first run that needs them. Usable from any event loop and thread.

    A `method` other than None is used as it is; None takes the best that this system allows, and logs a warning where
    those leave something unprotected. Where neither namespaces nor bubblewrap stand, the first run raises InputError
    unless the environment has `COOKHOUSE_WEAK_SANDBOX=1`; as root it does even then, and for
    `method=IsolationMethod.PROCESS`. `is_trusted` says that programs are the caller's own, which need no isolation.

    `preload` names modules that programs import often, such as numpy; `modules` are those of `Program.modules` that
    workers load when they start, not with the first program.
    """

    def __init__(
        self,
        *,
        num_workers: int | None = None,
        method: IsolationMethod | None = None,
        is_trusted: bool = False,
        preload: Sequence[str] = (),
        modules: Mapping[str, str] | None = None,
        disk_bytes: int = Limits.disk_bytes,
    ) -> None:
        count = num_workers if num_workers is not None else min(_num_cores(), _MAX_DEFAULT_WORKERS)
        if count < 1:
            raise InputError(f"num_workers is {count}; a sandbox needs at least 1")
        self._method = method
        self._is_trusted = is_trusted
        self._isolation: Isolation | None = None
        self._preload = tuple(preload)
        self._modules = dict(modules or {})
        self._disk_bytes = disk_bytes
        self._lock = threading.Lock()
        self._closed = False
        self._slots: queue.LifoQueue[_Slot] = queue.LifoQueue()  # the warmest first
        self._all = [_Slot(self._start_worker) for _ in range(count)]
        for slot in reversed(self._all):
            self._slots.put(slot)
        self._threads = concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="sandbox")
        atexit.register(self.close)

    def isolation(self) -> Isolation:
        """Restrictions on programs. Starts a worker if none has run yet; raises as `run`."""
        if self._isolation is None:
            self._start_worker().close()
        assert self._isolation is not None
        return self._isolation

    async def run(self, program: Program) -> Execution:
        """Run to the end; cancellation kills the run. Raises InputError (no isolation), ServiceError (no worker)."""
        return await self._in_slot(lambda slot: slot.run(program))

    async def run_pair(self, program: Program, judge: Program) -> tuple[Execution, Execution]:
        """Run both in workers of their own, joined by a socket; when the judge ends, the program is stopped."""
        return await self._in_slot(lambda slot: slot.run_pair(program, judge))

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Kill every worker; runs in progress end as stopped, those that wait are cancelled. Safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for slot in self._all:
            slot.stop()
        self._threads.shutdown()
        for slot in self._all:
            slot.close()

    async def _in_slot(self, task: Callable[["_Slot"], _T]) -> _T:
        if self._closed:
            raise InputError("the sandbox is closed; make another")
        run = _Run(self._slots, task)
        future = self._threads.submit(run)
        try:
            return await asyncio.wrap_future(future)
        finally:
            run.cancel()

    def _start_worker(self) -> WarmWorker:
        with self._lock:
            if self._isolation is None:
                return self._start_first()
            method = self._isolation.method
        return WarmWorker(method, self._disk_bytes, self._preload, self._modules)

    def _start_first(self) -> WarmWorker:
        """A worker isolated by the best method that works; it is then used for all, and stated once."""
        worker = self._start_best()
        self._isolation = worker.isolation
        is_worth_warning = worker.isolation.missing and not self._is_trusted
        _logger.log(logging.WARNING if is_worth_warning else logging.INFO, "code sandbox: %s", worker.isolation)
        return worker

    def _start_best(self) -> WarmWorker:
        reasons = [] if shutil.which("bwrap") else ["there is no bwrap"]
        *better, last = possible_methods() if self._method is None else [self._method]
        for method in better:
            try:
                return WarmWorker(method, self._disk_bytes, self._preload, self._modules)
            except ServiceError as error:
                reasons.append(str(error))
        if last is IsolationMethod.PROCESS and not self._is_trusted:
            check_weak_isolation(reasons, is_chosen=self._method is not None)
        return WarmWorker(last, self._disk_bytes, self._preload, self._modules)


class _Slot:
    """Room for one run at a time: a worker, and a second one for judges, each started when first needed."""

    def __init__(self, start_worker: Callable[[], WarmWorker]) -> None:
        self._start_worker = start_worker
        self._workers: dict[str, WarmWorker] = {}
        self._is_stopping = False

    def run(self, program: Program) -> Execution:
        return self._again_if_broken(lambda: self._run(program), _LOST)

    def run_pair(self, program: Program, judge: Program) -> tuple[Execution, Execution]:
        return self._again_if_broken(lambda: self._run_pair(program, judge), (_LOST, _LOST))

    def open(self) -> None:
        self._is_stopping = False

    def stop(self) -> None:
        """End what runs now or is about to, until the slot is opened again. From any thread."""
        self._is_stopping = True
        for worker in list(self._workers.values()):
            worker.stop()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _run(self, program: Program) -> Execution:
        worker = self._worker("program")
        worker.start(program)
        if self._is_stopping:
            worker.stop()
        return worker.finish(program)

    def _run_pair(self, program: Program, judge: Program) -> tuple[Execution, Execution]:
        player, referee = self._worker("program"), self._worker("judge")
        near, far = socket.socketpair()
        with near, far:
            player.start(program, far)
            referee.start(judge, near)
        if self._is_stopping:
            self.stop()
        verdict = referee.finish(judge)
        player.stop()
        return player.finish(program), verdict

    def _worker(self, role: str) -> WarmWorker:
        if role not in self._workers:
            self._workers[role] = self._start_worker()
        return self._workers[role]

    def _again_if_broken(self, task: Callable[[], _T], lost: _T) -> _T:
        """A worker may be killed between two runs; a program that loses a second one is taken to be the cause."""
        for _ in range(2):
            try:
                return task()
            except WorkerEndedError as error:
                _logger.warning("%s; starting another", error)
                self.close()
        return lost


class _Run(Generic[_T]):
    """A task for a thread of the pool, which can be stopped from outside while it has a slot."""

    def __init__(self, slots: "queue.LifoQueue[_Slot]", task: Callable[[_Slot], _T]) -> None:
        self._slots = slots
        self._task = task
        self._lock = threading.Lock()
        self._slot: _Slot | None = None
        self._cancelled = False

    def __call__(self) -> _T:
        slot = self._slots.get()
        try:
            with self._lock:
                if self._cancelled:
                    raise concurrent.futures.CancelledError
                self._slot = slot
                slot.open()
            return self._task(slot)
        finally:
            with self._lock:
                self._slot = None
            self._slots.put(slot)

    def cancel(self) -> None:
        """Stop the run if it has a slot, and keep it from taking one otherwise; nothing if it has ended."""
        with self._lock:
            self._cancelled = True
            if self._slot is not None:
                self._slot.stop()


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def default_sandbox() -> LocalSandbox:
    """The sandbox that grading uses by default: one for the process, closed at its end."""
    return LocalSandbox()
