"""Commands on their way to workers: each goes to one, or waits for a place, or for weights.

place ──► Placement ──► WorkerHandle ──► worker
├── a model that is looking for a place: behind its creation
└── a sample whose weights are elsewhere, or are yet to be published again: until they are there
"""

import logging
from collections.abc import Callable, Collection, Sequence

from cookhouse.engine.contract import Create, Fetch, Load, ModelCommand, Publish, Sample, SaveSnapshot
from cookhouse.errors import InputError
from cookhouse.server.pool.creations import Creations
from cookhouse.server.pool.needs import Need
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.placement import Placement
from cookhouse.server.pool.roster import Roster
from cookhouse.server.pool.transfers import Ask, Transfers
from cookhouse.server.pool.weights import Shape, Weights
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.refusals import LostError

_log = logging.getLogger(__name__)


class Dispatch:
    """Lives on the event loop."""

    def __init__(
        self,
        roster: Roster,
        weights: Weights,
        calls: dict[str, PendingCommand],
        *,
        ask: Ask,
        sampled: Callable[[], Collection[str]],
    ) -> None:
        """`calls` are all that have no answer; for `ask` and `sampled` see `Transfers`."""
        self._roster = roster
        self._calls = calls
        self._sampled = sampled
        self.weights = weights
        self.placement = Placement()
        self.creations = Creations()
        self.transfers = Transfers(weights, roster.workers, ask, self._go_on, sampled)
        self.shapes: dict[str, Shape] = {}
        """Of models."""

    def holds(self, snapshot_id: str) -> bool:
        """Whether weights are with a worker, or in a file."""
        in_file = self.weights.fetch(snapshot_id) is not None
        return in_file or any(snapshot_id in worker.snapshots for worker in self._roster.workers)

    def lose(self, call: PendingCommand, words: str) -> None:
        """Fail a call that went with a worker, or with the weights that it needs."""
        if self._calls.pop(call.command.command_id, None) is not None:
            call.fail(LostError(words))

    def place(self, call: PendingCommand) -> None:
        """Hand a call to the worker that it is for, or have it wait."""
        command = call.command
        if command.command_id not in self._calls:  # canceled while it waited
            return
        match command:
            case ModelCommand():
                self._place_in_model(call, command)
            case Sample():
                self._place_sample(call, command)
            case Fetch():
                self._place_fetch(call, command)
            case SaveSnapshot():
                if not self.creations.wait_for_weights(command.snapshot_id, call):
                    (self.weights.holder(command.snapshot_id, self._roster.workers) or self._roster.anyone).put(call)
            case _:
                self._roster.anyone.put(call)

    def _place_in_model(self, call: PendingCommand, command: ModelCommand) -> None:
        model_id = command.model_id
        if self.creations.wait(model_id, call):
            return
        if isinstance(command, Create | Load):
            self.shapes[model_id] = Shape(command.account, command.base_model, command.lora)
        worker = self.placement.worker_of(model_id)
        if worker is None:
            worker = self._roster.anyone
            if isinstance(command, Create | Load):
                workers = self.placement.for_model(self._roster.workers, Need.of(command), model_id)
                workers = workers or self._roster.workers
                worker = workers[0]
                call.makes_model = True
                self.creations.begin(model_id, call, workers, is_move=self.placement.is_sent(model_id))
                self.placement.put_model(model_id, worker)
        self.placement.note_use(model_id)
        if isinstance(command, Publish):
            self._publish(worker, call, command)
        else:
            worker.put(call)

    def _publish(self, worker: WorkerHandle, call: PendingCommand, command: Publish) -> None:
        snapshot_id = command.snapshot_id
        self._drop_copies(worker, command)
        if command.model_id in self.shapes:
            self.weights.note_published(snapshot_id, self.shapes[command.model_id], worker, command.model_id)
        if snapshot_id in worker.snapshots:
            # A replay, at a worker that fetched these weights from the one that was lost.
            self._calls.pop(command.command_id)
            call.finish(None)
        else:
            worker.snapshots.add(snapshot_id)
            worker.fetched.discard(snapshot_id)
            worker.put(call)
        for waiting in self.weights.come(snapshot_id):
            self.place(waiting)

    def _drop_copies(self, worker: WorkerHandle, command: Publish) -> None:
        """Have the worker that a model was on forget its newest weights, which it would not drop by itself: another
        publishes newer ones, or these once more.
        """
        newest = self.weights.newest(command.model_id)
        for snapshot_id in {command.snapshot_id, newest or command.snapshot_id}:
            origin = self.weights.origin(snapshot_id)
            is_copy = snapshot_id == command.snapshot_id or self.weights.fetch(snapshot_id) is not None
            if origin is None or origin is worker or snapshot_id not in origin.snapshots or not is_copy:
                continue
            if snapshot_id not in self._sampled():
                origin.forget_snapshot(command.account, snapshot_id)

    def _place_fetch(self, call: PendingCommand, command: Fetch) -> None:
        worker = self.placement.for_fetch(self._roster.workers, Need.of(command)) or self._roster.anyone
        worker.snapshots.add(command.snapshot_id)
        worker.put(call)

    def _place_sample(self, call: PendingCommand, command: Sample) -> None:
        snapshot_id = command.request.snapshot_id
        if snapshot_id is not None and self.weights.waits(snapshot_id, call):
            return
        need = self.weights.need(command.request)
        worker = self.placement.for_sample(self._untried(call), command.request, need)
        if worker is None:
            self._calls.pop(command.command_id)
            call.fail(call.refusal())
            return
        try:
            if snapshot_id is None or self.transfers.bring(snapshot_id, worker, call):
                worker.put(call)
        except LostError as error:
            self.lose(call, str(error))

    def _untried(self, call: PendingCommand) -> Sequence[WorkerHandle]:
        """Workers that have not said that they have no memory for it. Once one has, others must be up, or about to be:
        a refusal with figures is worth more than a wait without an end.
        """
        if not call.refusals:
            return self._roster.workers
        return [worker for worker in self._roster.workers if worker.name not in call.refusals and worker.may_come]

    def _go_on(self, call: PendingCommand, error: BaseException | None) -> None:
        """Weights that a sample waited for were written, or could not be."""
        command = call.command
        assert isinstance(command, Sample)
        snapshot_id = command.request.snapshot_id or ""
        if error is None or (isinstance(error, LostError | InputError) and self.can_come(snapshot_id)):
            self.place(call)
        elif isinstance(error, LostError | InputError):
            self.lose(call, f"the weights of this sampling client are gone: {error}")
        elif self._calls.pop(command.command_id, None) is not None:
            assert isinstance(error, Exception)
            call.fail(error)

    def has_whole(self, call: PendingCommand, worker: WorkerHandle) -> bool:
        """Whether a sample whose weights a worker found damaged can be drawn all the same, which is tried once: from
        what another worker holds, or, where it was the worker's own copy, from a file.
        """
        command = call.command
        if not isinstance(command, Sample) or command.request.snapshot_id is None or call.is_tried_again:
            return False
        snapshot_id = command.request.snapshot_id
        is_own = self.weights.origin(snapshot_id) is worker
        is_held = any(snapshot_id in one.snapshots for one in self._roster.workers if one is not worker)
        if not is_held and not (is_own and self.weights.fetch(snapshot_id) is not None):
            return False
        if not is_own:  # the file is damaged, and is written anew
            self.weights.drop_file(snapshot_id)
        call.is_tried_again = True
        worker.note_dropped(snapshot_id)
        _log.warning("weights of a sampling client are damaged at %s, and are had from elsewhere again", worker.name)
        return True

    def can_come(self, snapshot_id: str) -> bool:
        """Whether weights are somewhere, or will be."""
        return self.weights.waits(snapshot_id) or self.holds(snapshot_id)
