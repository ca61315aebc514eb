"""New models that are looking for a worker with memory for them.

Create, Load ──► the best worker ── no memory ──► the next one ── … ──► refused, with what each of them said
                       └── made ──► what came behind it follows
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cookhouse.engine.contract import CanceledError, NoMemoryError, Publish
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.worker_handle import WorkerHandle


@dataclass(slots=True, kw_only=True)
class Creation:
    call: PendingCommand
    worker: WorkerHandle
    """Where it is tried now."""
    left: list[WorkerHandle]
    """Where it may be tried next."""
    is_move: bool = False
    """Whether its model need not have left a worker: whatever the first one says, others are tried."""
    behind: list[PendingCommand] = field(default_factory=list)
    """Commands of the model that wait until it has a place."""


class Creations:
    """By model."""

    def __init__(self) -> None:
        self._creations: dict[str, Creation] = {}

    def __len__(self) -> int:
        return len(self._creations)

    def begin(
        self, model_id: str, call: PendingCommand, workers: Sequence[WorkerHandle], *, is_move: bool = False
    ) -> None:
        """Try the first of some workers. With one there is nothing to wait for: it says what it says."""
        if len(workers) > 1:
            first, *left = workers
            self._creations[model_id] = Creation(call=call, worker=first, left=left, is_move=is_move)

    def wait(self, model_id: str, call: PendingCommand) -> bool:
        """Have a command wait for its model's place; False: the model has it."""
        creation = self._creations.get(model_id)
        if creation is not None:
            creation.behind.append(call)
        return creation is not None

    def wait_for_weights(self, snapshot_id: str, call: PendingCommand) -> bool:
        """Have a command wait behind the publication that it is of; False: none waits here."""
        for creation in self._creations.values():
            commands = (waiting.command for waiting in creation.behind)
            if any(isinstance(one, Publish) and one.snapshot_id == snapshot_id for one in commands):
                creation.behind.append(call)
                return True
        return False

    def next(self, model_id: str, worker: WorkerHandle, error: Exception) -> WorkerHandle | Creation | None:
        """After a failure: the worker to try now, or the creation that has failed; None: it is none of these."""
        creation = self._creations.get(model_id)
        if creation is None or creation.worker is not worker:
            return None
        if not isinstance(error, NoMemoryError) and not (creation.is_move and not isinstance(error, CanceledError)):
            return None
        creation.is_move = False
        creation.call.refusals[worker.name] = str(error)
        creation.left = [one for one in creation.left if one.may_come and not one.is_draining]
        if not creation.left:
            return creation
        creation.worker = creation.left.pop(0)
        return creation.worker

    def end(self, model_id: str) -> Sequence[PendingCommand]:
        """It has its place, or will have none: what waits behind it."""
        creation = self._creations.pop(model_id, None)
        return [] if creation is None else creation.behind
