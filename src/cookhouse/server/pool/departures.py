"""Models and calls that are taken from a worker: it was lost, it leaves, or another should have one of its models.

worker lost   ──┐                             ┌── models ──► `on_lost`: each runs again from its last state, elsewhere
worker leaves ──┼──► what goes with it: `LostState`┼── samples, and files to be read ──► other workers
model moves   ──┘                             └── the rest ──► fails with `LostError`
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from cookhouse.engine.contract import Account, Fetch, Forget, ModelCommand, Output, Publish, Sample, Save, SaveSnapshot
from cookhouse.server.pool.dispatch import Dispatch
from cookhouse.server.pool.leaving import leaver
from cookhouse.server.pool.leftovers import delete
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.roster import Roster
from cookhouse.server.pool.worker_handle import WorkerHandle

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_LEAVE_SECONDS = 1.0
"""For a worker to end that has nothing left to do, or no more time for it."""


class Departures:
    """Lives on the event loop."""

    def __init__(
        self,
        roster: Roster,
        dispatch: Dispatch,
        calls: dict[str, PendingCommand],
        *,
        folder: Path | None,
        max_losses: int,
        on_lost: Callable[[LostState], None],
    ) -> None:
        """For `folder`, `max_losses` and `on_lost` see `Pool`, whose `calls` are all that have no answer."""
        self._roster = roster
        self._members = roster.workers
        self._dispatch = dispatch
        self._placement, self._weights = dispatch.placement, dispatch.weights
        self._calls = calls
        self._folder = folder
        self._max_losses = max_losses
        self._on_lost = on_lost
        self.is_closing = False
        """Whether the server is about to end, and models stay where they are."""

    def leave(self, name: str) -> WorkerHandle:
        """Give a worker nothing new from now on; `empty` it then.

        Raises:
            InputError: there is no such worker, or none beside it that trains, or samples.
        """
        worker = leaver(self._members, name)
        worker.is_draining = True
        return worker

    async def empty(self, worker: WorkerHandle, seconds: float) -> None:
        """Have others go on with the models of a worker that leaves, and end it when its samples are drawn and files
        written, or after so many seconds; what is left then is drawn again by others, and deleted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._dispatch.transfers.rescue(worker, deadline)
        self._take_models(worker, self._left_behind(worker))
        while worker.commands and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        self.remove(worker)
        await self.end(worker, max(_LEAVE_SECONDS, deadline - loop.time()))

    def should_move(self, model_id: str, num_bytes: int) -> bool:
        """Whether `balance` would move a model if it had just been saved in so many bytes."""
        return self._better_worker(model_id, num_bytes) is not None

    async def published(self, model_id: str) -> None:
        """Wait for what a model is publishing now, if anything."""
        answers = self._publications(model_id)
        if answers:
            await asyncio.wait(answers)

    def balance(self, model_id: str, num_bytes: int) -> None:
        """Move a model to a worker that trains fewer, if there is one. Its state of so many bytes has just been saved:
        the other worker loads that, and runs what has come since.

        A model that trains all weights stays, since a worker trains one of these at a time. One that is publishing
        stays for now: samples may wait for what it publishes.
        """
        other = self._better_worker(model_id, num_bytes)
        if other is None or self._publications(model_id):
            return
        worker = self._placement.worker_of(model_id)
        assert worker is not None
        _log.warning("%s moves from %s to %s, which trains fewer models", model_id, worker.name, other.name)
        gone = LostState(reason=f"it moves to {other.name}", model_ids=[model_id], snapshot_ids=[], is_loss=False)
        self._take_models(worker, gone)
        self._placement.send_to(model_id, other)

    def _better_worker(self, model_id: str, num_bytes: int) -> WorkerHandle | None:
        worker = self._placement.worker_of(model_id)
        shape = self._dispatch.shapes.get(model_id)
        if self.is_closing or worker is None or shape is None or worker.is_draining or not shape.lora.rank:
            return None
        return self._placement.better_worker(model_id, self._members, shape.need(trains=True), num_bytes)

    def _publications(self, model_id: str) -> "Sequence[asyncio.Future[Output]]":
        calls = self._calls.values()
        return [
            call.answer for call in calls if isinstance(call.command, Publish) and call.command.model_id == model_id
        ]

    def remove(self, worker: WorkerHandle) -> None:
        """A worker has left, or was never up: others do what is left. Of one that is gone already nothing is."""
        if worker not in self._members:
            return
        worker.is_draining = True
        self._members.remove(worker)
        gone = self._left_behind(worker)
        self._placement.forget(worker)
        self._depart(worker, gone, list(worker.commands.values()))
        worker.snapshots.clear()  # its memory goes with it

    async def end(self, worker: WorkerHandle, seconds: float) -> None:
        """End a worker that was removed, and delete its folder: no other will have its name."""
        await worker.close(seconds)
        if self._folder is not None:
            await asyncio.to_thread(delete, self._folder / worker.plan.name)

    def note_lost(self, worker: WorkerHandle, reason: str) -> None:
        """Fail what cannot be done again, and submit the rest to other workers, or the next one."""
        for call in worker.commands.values():
            call.num_losses += 1
        for call in self._calls.values():  # the next one may have room
            call.refusals.pop(worker.name, None)
        gone = LostState(
            reason=reason,
            model_ids=self._placement.models_of(worker),
            snapshot_ids=self._weights.only_at(worker, self._members),
            worker=worker.in_words,
        )
        worker.snapshots, worker.fetched, worker.evicted = set(), set(), set()
        self._placement.forget(worker)
        self._depart(worker, gone, list(worker.commands.values()))

    def _left_behind(self, worker: WorkerHandle) -> LostState:
        """What goes with a worker that leaves."""
        return LostState(
            reason=f"{worker.name} has left",
            model_ids=self._placement.models_of(worker),
            snapshot_ids=self._weights.only_at(worker, self._roster.staying),
            is_loss=False,
        )

    def _take_models(self, worker: WorkerHandle, gone: LostState) -> None:
        """Take models from a worker that is up. Files of theirs that it has begun to write it writes to the end."""
        calls = list(worker.commands.values())
        taken = [call for call in calls if _is_of(call, gone) and not isinstance(call.command, Save)]
        coming = {call.command.snapshot_id for call in taken if isinstance(call.command, Publish)}
        for snapshot_id in coming:
            worker.drop(snapshot_id)
        samples = [call for call in calls if _samples(call, coming)]
        self._depart(worker, gone, [*taken, *samples])
        command_ids = tuple(call.command.command_id for call in samples)
        account = Account("", "")
        worker.submit(Forget(command_id="", account=account, model_ids=tuple(gone.model_ids), command_ids=command_ids))

    def _depart(self, worker: WorkerHandle, gone: LostState, left: Sequence[PendingCommand]) -> None:
        """Take models and calls from a worker."""
        self._placement.drop_models(gone.model_ids)
        behind = [call for model_id in gone.model_ids for call in self._dispatch.creations.end(model_id)]
        if not gone.is_loss:
            worker.snapshots -= set(gone.snapshot_ids)
        self._on_lost(gone)
        for call in left:
            worker.pop(call.command.command_id)
            if isinstance(call.command, Save | SaveSnapshot):
                worker.unanswered.append(call.command.url)
        again: list[PendingCommand] = []
        over: list[PendingCommand] = []
        for call in left:
            (again if self._can_be_repeated(call) else over).append(call)
        for call in (*over, *behind):
            self._dispatch.lose(call, f"the engine was lost: {gone.reason}")
        for call in sorted(again, key=lambda call: isinstance(call.command, Sample)):
            call.streamed.begin_again()
            call.spent.clear()
            self._dispatch.place(call)

    def _can_be_repeated(self, call: PendingCommand) -> bool:
        """Whether another worker answers it as this one would: what it needs is in files, or in a base model."""
        command = call.command
        if call.num_losses >= self._max_losses:
            return False
        if isinstance(command, Sample):
            return command.request.snapshot_id is None or self._dispatch.can_come(command.request.snapshot_id)
        return isinstance(command, Fetch)


def _samples(call: PendingCommand, snapshot_ids: Collection[str]) -> bool:
    """Whether it draws samples of weights."""
    return isinstance(call.command, Sample) and call.command.request.snapshot_id in snapshot_ids


def _is_of(call: PendingCommand, gone: LostState) -> bool:
    return isinstance(call.command, ModelCommand) and call.command.model_id in gone.model_ids
