"""Pool of a server's workers, and the commands that have no answer yet.

    send ──► Placement ──► WorkerHandle ──► worker ── events ──► the future of each command
                 └── a sample whose weights are at another worker: written there, fetched here, then generated

Samples do not depend on what else a worker does: of a streamed one that another worker goes on with, the tokens that
were sent already are not sent twice.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from cookhouse.engine.contract import (
    Amount,
    CanceledError,
    Command,
    Create,
    DamagedError,
    Done,
    Event,
    Evicted,
    Failed,
    Fetch,
    Forget,
    Load,
    Lost,
    ModelCommand,
    NoMemoryError,
    Output,
    Publish,
    Room,
    Sample,
    Save,
    SaveSnapshot,
    Spent,
    Tokens,
    Up,
)
from cookhouse.errors import CookhouseError, InputError
from cookhouse.server.pool.memory import Need
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.pending import OnTokens, PendingCommand
from cookhouse.server.pool.placement import Placement
from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.pool.transfer_files import TransferFiles
from cookhouse.server.pool.transfers import Transfers
from cookhouse.server.pool.weights import PublishedWeights
from cookhouse.server.pool.worker_handle import MakeWorker, NotStarted, WorkerHandle
from cookhouse.server.pool.workers import Workers
from cookhouse.server.refusals import LostError, error_of

_log = logging.getLogger(__name__)
_TRANSFERS = "moves"
"""Below `folder`."""


class Pool:
    """Lives on the event loop."""

    def __init__(
        self,
        make_worker: MakeWorker,
        meter: Meter,
        *,
        plans: Sequence[WorkerPlan],
        folder: Path | None,
        max_file_bytes: int,
        on_lost: Callable[[WorkerHandle, str], None],
    ) -> None:
        """See `Supervisor`; `on_lost` is given a worker that was lost, and why, before another is made."""
        self._meter = meter
        self._on_lost = on_lost
        self.workers = Workers(plans, make_worker, self._take)
        self._pending: dict[str, PendingCommand] = {}
        """All that were sent and have no answer, also those that are with no worker yet; by id."""
        files = None if folder is None else TransferFiles(folder / _TRANSFERS, max_file_bytes)
        self.placement = Placement()
        self.weights = PublishedWeights(self.workers, files)
        self.transfers = Transfers(self.weights, self.workers)
        self._room_changed = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """See `Workers`."""
        return self.workers.is_up

    def send(
        self, command: Command, on_tokens: OnTokens | None = None, *, spent: list[Amount] | None = None
    ) -> asyncio.Future[Output]:
        """Submit a command after those submitted before it. What the worker used that answers it is put into `spent`,
        where that is given, else it is counted.

        The future raises `InputError` where the caller is to blame, `LostError` where the worker was lost, and another
        `ServiceError` where the worker failed.
        """
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        pending = PendingCommand(command=command, answer=answer, on_tokens=on_tokens)
        if spent is not None:
            pending.spent = spent
            pending.is_counted = False
        self._pending[command.command_id] = pending
        waiting = self.weights.note_file(command) if isinstance(command, Fetch) else ()
        self.place(pending)
        for sample in waiting:
            self.place(sample)
        return answer

    def forget(self, command: Forget) -> None:
        """Submit what has no answer."""
        holders = {self.placement.worker_of(model_id) for model_id in command.model_ids}
        concerned = [worker for worker in self.workers if worker in holders or worker.knows(command)]
        for snapshot_id in command.snapshot_ids:
            self.give_up(snapshot_id)
            self.weights.forget(snapshot_id)
        if command.model_ids:
            self._note_room()
        for model_id in command.model_ids:
            self.placement.forget_shape(model_id)
            self._cancel_waiting(self.placement.end_creations([model_id]))
        for worker in self.workers.down:
            for command_id in command.command_ids:
                worker.withdraw(command_id)
        named = [pending for name in command.command_ids if (pending := self._pending.get(name)) is not None]
        self._cancel_waiting(named)
        for worker in concerned:
            worker.submit(command)
        self.placement.remove_models(command.model_ids)

    def note_file(self, fetch: Fetch) -> None:
        """Take note of a file that a worker without these weights can read them from; nobody publishes them again."""
        for pending in self.weights.note_file(fetch):
            self.place(pending)

    def forget_file(self, snapshot_id: str) -> None:
        """A file of weights that no sample under way reads is going to be deleted."""
        fetch = self.weights.forget_file(snapshot_id)
        if fetch is not None:
            self.transfers.forget_copies(snapshot_id, fetch.account)

    def sampled(self) -> Collection[str]:
        """Weights that samples under way read."""
        commands = (pending.command for pending in self._pending.values())
        return {one.request.snapshot_id or "" for one in commands if isinstance(one, Sample)}

    def publications(self, model_id: str) -> "Sequence[asyncio.Future[Output]]":
        """Answers that a model waits for to weights that it publishes."""
        return [
            pending.answer
            for pending in self._pending.values()
            if isinstance(pending.command, Publish) and pending.command.model_id == model_id
        ]

    def expect(self, snapshot_id: str) -> None:
        """Have samples of weights that no worker has wait until they are published again, or given up."""
        if not self.weights.is_held(snapshot_id):
            self.weights.expect(snapshot_id)

    def give_up(self, snapshot_id: str) -> None:
        """Weights will not be published again; what waits for them fails."""
        for pending in self.weights.end_wait(snapshot_id):
            self.end(pending, LostError("the weights of this sampling client are gone"))

    def forget_refusals(self, worker: WorkerHandle) -> None:
        """A worker that refused commands may have room for them, once another follows it."""
        for pending in self._pending.values():
            pending.refusals.pop(worker.name, None)

    async def wait_for_room(self, seconds: float) -> None:
        """Until a worker may have room that had none, or for so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._room_changed.wait(), seconds)

    def _take(self, worker: WorkerHandle, event: Event | NotStarted) -> None:
        match event:
            case Done(command_id=command_id, output=output):
                pending = worker.pop(command_id)
                if pending is not None:
                    if isinstance(pending.command, ModelCommand):
                        self.placement.note_answer(pending.command.model_id)
                    self._finish(pending, output)
            case Failed(command_id=command_id, failure=failure):
                if failure.details:
                    _log.error("%s failed: %s", worker.in_words, failure.details)
                pending = worker.pop(command_id)
                if pending is not None:
                    self._fail(worker, pending, error_of(failure))
            case Tokens(command_id=command_id, output=output):
                if command_id in worker.commands:
                    worker.commands[command_id].report(output)
            case Spent(amounts=amounts):
                self._meter.recent.count(amounts)
                for amount in amounts:
                    if not amount.command_id:
                        self._meter.count([amount])
                    elif amount.command_id in worker.commands:
                        worker.commands[amount.command_id].spent.append(amount)
            case Room():
                worker.memory.note_room(event)
                self._note_room()
            case Evicted(snapshot_id=snapshot_id):
                _log.info("weights of a sampling client were dropped: %s", snapshot_id)
                self.weights.note_evicted(worker, snapshot_id)
            case Lost(reason=reason):
                self._on_lost(worker, reason)
            case Up() | NotStarted():
                self._place_again()

    def place(self, pending: PendingCommand) -> None:
        """Hand a command to the worker that it is for, or have it wait: for a place of its model, or for weights that
        are at another worker, or are yet to be published again.
        """
        if pending.is_over:  # canceled while it waited
            return
        command = pending.command
        match command:
            case ModelCommand():
                worker = self.placement.worker_for(pending, command, self.workers)
                if isinstance(command, Publish) and worker is not None:
                    self._publish(worker, pending, command)
                elif worker is not None:
                    worker.put(pending)
            case Sample():
                self._place_sample(pending, command)
            case Fetch():
                worker = self.placement.for_fetch(self.workers, Need.of(command)) or self.workers.anyone
                worker.memory.note_loaded(command.snapshot_id)
                worker.put(pending)
            case SaveSnapshot():
                if not self.placement.wait_for_publication(command.snapshot_id, pending):
                    (self.weights.holder(command.snapshot_id) or self.workers.anyone).put(pending)
            case _:
                self.workers.anyone.put(pending)

    def _publish(self, worker: WorkerHandle, pending: PendingCommand, command: Publish) -> None:
        snapshot_id = command.snapshot_id
        for other, copy in self.weights.copies_beside(worker, command):
            if copy not in self.sampled():
                other.forget_snapshot(command.account, copy)
        shape = self.placement.shape(command.model_id)
        if shape is not None:
            self.weights.note_published(snapshot_id, shape, worker, command.model_id)
        if snapshot_id in worker.memory.snapshots:
            # A replay, at a worker that fetched these weights from the one that was lost.
            self.end(pending, None)
        else:
            worker.memory.note_published(snapshot_id)
            worker.put(pending)
        for waiting in self.weights.end_wait(snapshot_id):
            self.place(waiting)

    def _place_sample(self, pending: PendingCommand, command: Sample) -> None:
        request, snapshot_id = command.request, command.request.snapshot_id
        if snapshot_id is not None and self.weights.wait(snapshot_id, pending):
            return
        # Once a worker has refused it, others must be up, or about to be: a refusal with figures is worth more than a
        # wait without an end.
        refusing = pending.refusals
        untried = [one for one in self.workers if not refusing or (one.name not in refusing and one.may_come)]
        worker = self.placement.for_sample(untried, request, self.weights.need(request))
        if worker is None:
            self.end(pending, pending.refusal())
        elif snapshot_id is None or self.transfers.give(snapshot_id, worker):
            worker.put(pending)
        else:
            self._bring(snapshot_id, pending)

    def _bring(self, snapshot_id: str, pending: PendingCommand) -> None:
        """Have a sample wait until its weights are written for others."""
        holder = self.weights.holder(snapshot_id)
        if holder is None:
            words = "the weights of this sampling client made room for newer ones; publish them again"
            self.end(pending, LostError(words))
            return
        self.write(snapshot_id, holder)
        self.transfers.wait(snapshot_id, pending)

    def write(self, snapshot_id: str, holder: WorkerHandle) -> None:
        """Have weights written for others, unless they are already."""
        if not self.transfers.is_writing([snapshot_id]):
            answer = self.transfers.write(snapshot_id, holder)
            answer.add_done_callback(partial(self._go_on, snapshot_id))

    def _go_on(self, snapshot_id: str, answer: "asyncio.Future[Output]") -> None:
        """Weights that samples waited for were written, or could not be."""
        for pending in self.transfers.note_written(snapshot_id, answer, self.sampled()):
            error = answer.exception()
            if error is None or (isinstance(error, LostError | InputError) and self.weights.can_come(snapshot_id)):
                self.place(pending)
            elif isinstance(error, LostError | InputError):
                self.end(pending, LostError(f"the weights of this sampling client are gone: {error}"))
            else:
                assert isinstance(error, Exception)
                self.end(pending, error)

    def _finish(self, pending: PendingCommand, outcome: Output | Exception) -> None:
        """Give the answer of a worker. What was to make a model has made it, or has failed: what waits behind it
        follows.
        """
        if pending.is_counted:
            self._meter.count(pending.spent)
        if isinstance(pending.command, Create | Load):
            for behind in self.placement.end_creations([pending.command.model_id]):
                self.place(behind)
        self.end(pending, outcome)

    def end(self, pending: PendingCommand, outcome: Output | Exception) -> None:
        """Answer, or fail, whoever waits for a command."""
        if pending.is_over:
            return
        pending.is_over = True
        self._pending.pop(pending.command.command_id, None)
        if pending.answer.done():  # canceled
            return
        if isinstance(outcome, Exception):
            pending.answer.set_exception(outcome)
        else:
            pending.answer.set_result(outcome)

    def _fail(self, worker: WorkerHandle, pending: PendingCommand, error: CookhouseError) -> None:
        command = pending.command
        if isinstance(command, Save) and isinstance(error, CanceledError):
            error = self._why_canceled(worker, command, error)
        if isinstance(error, NoMemoryError):
            worker.memory.note_refusal(command)
        if isinstance(command, Sample) and isinstance(error, NoMemoryError) and len(self.workers) > 1:
            pending.refusals[worker.name] = str(error)
            self.place(pending)
            return
        if isinstance(error, DamagedError) and self.weights.drop_damaged(pending, worker):
            self.place(pending)
            return
        if isinstance(command, Create | Load):
            then = self.placement.next_worker(command.model_id, worker, error)
            if isinstance(then, WorkerHandle):
                then.put(pending)
                return
            error = then
            if pending.makes_model:
                self.placement.remove_models([command.model_id])
        self._finish(pending, error)

    def _why_canceled(self, worker: WorkerHandle, command: Save, error: CanceledError) -> CookhouseError:
        """A worker forgets a model with which others go on: what it was to write has to be asked of these."""
        if worker.is_draining:
            return LostError(f"the engine was lost: {worker.name} has left")
        if self.placement.shape(command.model_id) is not None:
            return LostError(f"the engine was lost: {command.model_id} has moved to another worker")
        return error

    def _cancel_waiting(self, commands: Sequence[PendingCommand]) -> None:
        """Cancel those that no worker has."""
        for pending in commands:
            if pending.worker is None:
                self.end(pending, CanceledError(f"{pending.command.command_id} was canceled"))

    def _note_room(self) -> None:
        """A worker may have room that had none: wake all who wait now."""
        self._room_changed.set()
        self._room_changed = asyncio.Event()

    def _place_again(self) -> None:
        """A worker is up, or could not be started: what waits for those that are not up is done by those that are."""
        for worker in self.workers.down if self.workers.anyone.is_up else ():
            recalled, forgets = worker.recall()
            behind = self.placement.end_creations(self.placement.models_of(worker))
            self.placement.remove_worker(worker)
            for pending in (*recalled, *behind):
                self.place(pending)
            for command in forgets:
                self.forget(command)
        self._note_room()
