"""Supervisor of a server's workers: starts and ends them, and has others go on with what one had.

    worker lost    ──┐                              ┌── models ──► `on_lost`: each runs again from its last state
    worker drained ──┼──► what it had: `LostState` ─┼── samples, and files to be read ──► other workers
    model moves    ──┘                              └── the rest ──► fails with `LostError`

A worker that is lost is replaced. What it held in memory is lost, and the commands that wait for it fail with
`LostError`; but samples do not depend on what else it did, so they are submitted again, with the same seed, to another
one: when it has their weights, from a file or because they were published again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from cookhouse.engine.contract import Command, Fetch, ModelCommand, Publish, Sample, Save, Up
from cookhouse.server.pool.leftovers import delete
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.pending import PendingCommand, forget_command
from cookhouse.server.pool.plans import Kind, WorkerPlan
from cookhouse.server.pool.pool import Pool
from cookhouse.server.pool.worker_handle import MakeWorker, WorkerHandle, words_of
from cookhouse.server.refusals import LostError

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_END_SECONDS = 1.0
"""For a worker to end that has nothing left to do, or no more time for it."""


class Supervisor:
    """Lives on the event loop."""

    def __init__(
        self,
        make_worker: MakeWorker,
        meter: Meter,
        *,
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        folder: Path | None = None,
        max_file_bytes: int = 2**33,
        max_losses: int = 3,
        on_lost: Callable[[LostState], None] = lambda _lost: None,
    ) -> None:
        """`make_worker` is called in the event loop's thread, for each of `plans`; `on_lost` is given what went with a
        worker, before its commands fail: what it sends goes to others or to the next one, and what it expects will come
        there. `folder` is where weights lie on their way between workers, and `max_file_bytes` what they may take
        there; needed for several. `max_losses`: workers that may end under one sample, which may be what ends them.
        """
        self.pool = Pool(
            make_worker, meter, plans=plans, folder=folder, max_file_bytes=max_file_bytes, on_lost=self._note_lost
        )
        self._workers = self.pool.workers
        self._folder = folder
        self._max_losses = max_losses
        self._on_lost = on_lost
        self._starts: set[asyncio.Task[None]] = set()
        """Of workers that were added."""
        self._balances = True

    async def open(self) -> Up:
        """See `Workers`."""
        return await self._workers.open()

    async def close(self, seconds: float) -> bool:
        """See `Workers`."""
        for task in self._starts:
            task.cancel()
        return await self._workers.close(seconds)

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker, which is given work once it is up. Raises as `next_plan`."""
        worker = self._workers.add(kind)
        task = asyncio.create_task(self._start(worker), name=f"start of {worker.name}")
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)
        return worker.plan

    def begin_drain(self, name: str) -> WorkerHandle:
        """Give a worker nothing new from now on; `drain` it then. Raises as `Workers.drainable`."""
        worker = self._workers.drainable(name)
        worker.is_draining = True
        return worker

    async def drain(self, worker: WorkerHandle, seconds: float) -> None:
        """Have others go on with the models of a worker, and end it when its samples are generated and files written,
        or after so many seconds; what is left then is generated again by others, and deleted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        weights = self.pool.weights
        names = [name for name in weights.only_at(worker, self._workers.staying) if weights.shape(name) is not None]
        for snapshot_id in names:
            self.pool.write(snapshot_id, worker)
        while self.pool.transfers.is_writing(names) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        self._take_models(worker, self._left_at(worker))
        while worker.commands and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        self._remove(worker)
        await self._close(worker, max(_END_SECONDS, deadline - loop.time()))

    def should_move(self, model_id: str, num_bytes: int) -> bool:
        """True if `balance` would move a model if it had just been saved in so many bytes."""
        return self._better_worker(model_id, num_bytes) is not None

    async def wait_for_publications(self, model_id: str) -> None:
        """Wait for what a model is publishing now, if anything."""
        answers = self.pool.publications(model_id)
        if answers:
            await asyncio.wait(answers)

    def balance(self, model_id: str, num_bytes: int) -> None:
        """Move a model to a worker that trains fewer, if there is one. Its state of so many bytes has just been saved:
        the other worker loads that, and runs what has come since.

        A model that trains all weights stays, since a worker trains one of these at a time. One that is publishing
        stays for now: samples may wait for what it publishes.
        """
        worker, other = self.pool.placement.worker_of(model_id), self._better_worker(model_id, num_bytes)
        if worker is None or other is None or self.pool.publications(model_id):
            return
        _log.warning("%s moves from %s to %s, which trains fewer models", model_id, worker.name, other.name)
        lost = LostState(reason=f"it moves to {other.name}", model_ids=[model_id], snapshot_ids=[], is_loss=False)
        self._take_models(worker, lost)
        self.pool.placement.send_to(model_id, other)

    def stop_balancing(self) -> None:
        """Have models stay where they are: the server is about to end."""
        self._balances = False

    async def _start(self, worker: WorkerHandle) -> None:
        try:
            await worker.open()
        except Exception as error:  # also what a machine without memory or descriptors raises
            if worker in self._workers:  # it was not drained meanwhile
                _log.error("%s could not be started: %s", worker.name, words_of(error))
                self._remove(worker)
            await self._close(worker, _END_SECONDS)

    async def _close(self, worker: WorkerHandle, seconds: float) -> None:
        """End a worker that was removed, and delete its folder: no other will have its name."""
        await worker.close(seconds)
        if self._folder is not None:
            await asyncio.to_thread(delete, self._folder / worker.name)

    def _better_worker(self, model_id: str, num_bytes: int) -> WorkerHandle | None:
        worker, shape = self.pool.placement.worker_of(model_id), self.pool.placement.shape(model_id)
        if not self._balances or worker is None or shape is None or worker.is_draining or not shape.lora.rank:
            return None
        return self.pool.placement.better_worker(model_id, self._workers, shape.need(trains=True), num_bytes)

    def _remove(self, worker: WorkerHandle) -> None:
        """A worker was drained, or was never up: others do what is left. Of one that was removed already nothing is."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        lost = self._left_at(worker)
        self.pool.placement.remove_worker(worker)
        self._take_away(worker, lost, list(worker.commands.values()))
        worker.memory.end()

    def _note_lost(self, worker: WorkerHandle, reason: str) -> None:
        """Fail what cannot be done again, and submit the rest to other workers, or the next one."""
        for pending in worker.commands.values():
            pending.num_losses += 1
        self.pool.forget_refusals(worker)  # the next one may have room
        lost = LostState(
            reason=reason,
            model_ids=self.pool.placement.models_of(worker),
            snapshot_ids=self.pool.weights.only_at(worker, self._workers),
            worker=worker.in_words,
        )
        worker.memory.end()
        self.pool.placement.remove_worker(worker)
        self._take_away(worker, lost, list(worker.commands.values()))

    def _left_at(self, worker: WorkerHandle) -> LostState:
        """Models and weights that leave with a worker that is drained."""
        return LostState(
            reason=f"{worker.name} has left",
            model_ids=self.pool.placement.models_of(worker),
            snapshot_ids=self.pool.weights.only_at(worker, self._workers.staying),
            is_loss=False,
        )

    def _take_models(self, worker: WorkerHandle, lost: LostState) -> None:
        """Take models from a worker that is up. Files of theirs that it has begun to write it writes to the end."""
        commands = list(worker.commands.values())
        taken = [one for one in commands if _is_of(one.command, lost.model_ids) and not isinstance(one.command, Save)]
        expected = {one.command.snapshot_id for one in taken if isinstance(one.command, Publish)}
        for snapshot_id in expected:
            worker.memory.forget(snapshot_id)
        samples = [one for one in commands if _samples(one.command, expected)]
        self._take_away(worker, lost, [*taken, *samples])
        command_ids = tuple(one.command.command_id for one in samples)
        worker.submit(forget_command("", "", model_ids=tuple(lost.model_ids), command_ids=command_ids))

    def _take_away(self, worker: WorkerHandle, lost: LostState, left: Sequence[PendingCommand]) -> None:
        """Take models and commands from a worker."""
        self.pool.placement.remove_models(lost.model_ids)
        behind = self.pool.placement.end_creations(lost.model_ids)
        if not lost.is_loss:
            worker.memory.lose(lost.snapshot_ids)
        self._on_lost(lost)
        for pending in left:
            worker.take_away(pending)
        again: list[PendingCommand] = []
        over: list[PendingCommand] = []
        for pending in left:
            (again if self._can_be_repeated(pending) else over).append(pending)
        for pending in (*over, *behind):
            self.pool.end(pending, LostError(f"the engine was lost: {lost.reason}"))
        for pending in sorted(again, key=lambda pending: isinstance(pending.command, Sample)):
            pending.begin_again()
            self.pool.place(pending)

    def _can_be_repeated(self, pending: PendingCommand) -> bool:
        """True if another worker answers it as this one would: what it needs is in files, or in a base model."""
        command = pending.command
        if pending.num_losses >= self._max_losses:
            return False
        if isinstance(command, Sample):
            return command.request.snapshot_id is None or self.pool.weights.can_come(command.request.snapshot_id)
        return isinstance(command, Fetch)


def _is_of(command: Command, model_ids: Collection[str]) -> bool:
    return isinstance(command, ModelCommand) and command.model_id in model_ids


def _samples(command: Command, snapshot_ids: Collection[str]) -> bool:
    """True if it generates a sample of some weights."""
    return isinstance(command, Sample) and command.request.snapshot_id in snapshot_ids
