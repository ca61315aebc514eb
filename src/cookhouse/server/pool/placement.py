"""Placement of models and samples at workers.

Rather at a worker that is up, then at one that has memory, then where it costs least. The cost is counted in tokens, as
what a worker has to do: those of the commands that are with it, so many for each of its models, and for what it would
have to load, fetch or compute first. Of two that cost the same it is the one with the smaller number, so that equal
inputs give equal places.

A model stays where it was put until that worker is lost or drained, or another trains fewer. Samples may be generated
anywhere, with the same tokens.

    Create, Load ──► the best worker ── no memory ──► the next one ── … ──► refused, with what each of them said
                           └── made ──► what came behind it follows
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cookhouse.engine.contract import (
    CanceledError,
    Create,
    Load,
    ModelCommand,
    NoMemoryError,
    Publish,
    SampleRequest,
)
from cookhouse.errors import CookhouseError
from cookhouse.server.pool.memory import Need, Shape
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.pool.workers import Workers

_log = logging.getLogger(__name__)
_MODEL_TOKENS = 2**16
"""What a model counts that a worker has: a large batch, since more will come for as long as it is there."""
_LOAD_TOKENS = 2**18
"""What it counts that a worker has to load a base model first: as much as four models, so that one which has it is
passed over only where it is much busier."""
_FETCH_TOKENS = 2048
"""What it counts that a worker has to fetch weights first."""
_PREFIX_TOKENS = 64
"""A prompt's beginning, by which its prefix is known again."""
_MAX_PREFIXES = 4096
"""Remembered of each worker; its cache forgets them too."""
_ACTIVE_SECONDS = 60.0
"""A model counts as one that trains for so long after it was last asked for something, or answered."""
_BYTES_OF_STATE = 3
"""What a model takes of memory for each byte of its state: 28 for a parameter, of which a state has 12."""

Prefix = tuple[str, str, bytes]


@dataclass(slots=True, kw_only=True)
class _Creation:
    """A new model that is looking for a worker with memory for it."""

    pending: PendingCommand
    worker: WorkerHandle
    """Where it is tried now."""
    left: list[WorkerHandle]
    """Where it may be tried next."""
    is_move: bool = False
    """Whether its model need not have left a worker: whatever the first one says, others are tried."""
    behind: list[PendingCommand] = field(default_factory=list)
    """Commands of the model that wait until it has a place."""


class Placement:
    def __init__(self) -> None:
        self._workers: dict[str, WorkerHandle] = {}
        """By model."""
        self._models: dict[WorkerHandle, dict[str, None]] = {}
        self._shapes: dict[str, Shape] = {}
        """Of models, also of those that are on no worker."""
        self._used_at: dict[str, float] = {}
        """When a command of a model was last sent or answered, on the clock of `time.monotonic`."""
        self._sent_to: dict[str, WorkerHandle] = {}
        """By model that was moved: the worker that has yet to load it."""
        self._creations: dict[str, _Creation] = {}
        """By model."""
        self._prefixes: dict[WorkerHandle, OrderedDict[Prefix, None]] = {}

    def worker_of(self, model_id: str) -> WorkerHandle | None:
        return self._workers.get(model_id)

    def worker_for(self, pending: PendingCommand, command: ModelCommand, workers: Workers) -> WorkerHandle | None:
        """The worker that a command of a model goes to; None: it waits until its model has one."""
        model_id = command.model_id
        creation = self._creations.get(model_id)
        if creation is not None:
            creation.behind.append(pending)
            return None
        if isinstance(command, Create | Load):
            self._shapes[model_id] = Shape(command.account, command.base_model, command.lora)
        worker = self._workers.get(model_id)
        if worker is not None:
            self._used_at[model_id] = time.monotonic()
            return worker
        if not isinstance(command, Create | Load):
            return workers.anyone
        pending.makes_model = True
        first, *left = self.for_model(workers, Need.of(command), model_id) or workers
        if left:  # else there is nothing to wait for: it says what it says
            is_move = self.is_sent(model_id)
            self._creations[model_id] = _Creation(pending=pending, worker=first, left=left, is_move=is_move)
        self.put_model(model_id, first)
        return first

    def next_worker(self, model_id: str, worker: WorkerHandle, error: CookhouseError) -> WorkerHandle | CookhouseError:
        """After a failure: the worker to try now, or what the creation fails with."""
        creation = self._creations.get(model_id)
        if creation is None or creation.worker is not worker:
            return error
        if not isinstance(error, NoMemoryError) and not (creation.is_move and not isinstance(error, CanceledError)):
            return error
        creation.is_move = False
        creation.pending.refusals[worker.name] = str(error)
        creation.left = [one for one in creation.left if one.may_come and not one.is_draining]
        if not creation.left:
            return creation.pending.refusal()
        creation.worker = creation.left.pop(0)
        _log.info("%s cannot take %s: %s", worker.name, model_id, error)
        command = creation.pending.command
        if not isinstance(error, NoMemoryError) and isinstance(command, Create | Load):
            worker.memory.note_unloadable(command.base_model)
        self.put_model(model_id, creation.worker)
        return creation.worker

    def end_creations(self, model_ids: Iterable[str]) -> Sequence[PendingCommand]:
        """Models have their places, or will have none: what waits behind these."""
        creations = [self._creations.pop(model_id, None) for model_id in model_ids]
        return [pending for creation in creations if creation is not None for pending in creation.behind]

    def wait_for_publication(self, snapshot_id: str, pending: PendingCommand) -> bool:
        """Have a command wait behind the publication that it is of; False: none waits behind a creation."""
        for creation in self._creations.values():
            commands = (waiting.command for waiting in creation.behind)
            if any(isinstance(one, Publish) and one.snapshot_id == snapshot_id for one in commands):
                creation.behind.append(pending)
                return True
        return False

    def shape(self, model_id: str) -> Shape | None:
        """Shape of a model; None: it was never made here, or is forgotten."""
        return self._shapes.get(model_id)

    def forget_shape(self, model_id: str) -> None:
        """Nobody goes on with a model."""
        self._shapes.pop(model_id, None)

    def put_model(self, model_id: str, worker: WorkerHandle) -> None:
        self.remove_models([model_id])
        self._workers[model_id] = worker
        self._models.setdefault(worker, {})[model_id] = None
        self._used_at[model_id] = time.monotonic()

    def note_answer(self, model_id: str) -> None:
        """A worker has answered a command of a model."""
        if model_id in self._workers:
            self._used_at[model_id] = time.monotonic()

    def send_to(self, model_id: str, worker: WorkerHandle) -> None:
        """Have a model that was taken from one worker go to another."""
        self._sent_to[model_id] = worker

    def is_sent(self, model_id: str) -> bool:
        """True if a model was moved, and has yet to be loaded."""
        return model_id in self._sent_to

    def remove_models(self, model_ids: Iterable[str]) -> None:
        """Models are on no worker any more."""
        for model_id in model_ids:
            self._used_at.pop(model_id, None)
            self._sent_to.pop(model_id, None)
            worker = self._workers.pop(model_id, None)
            if worker is not None:
                del self._models[worker][model_id]

    def remove_worker(self, worker: WorkerHandle) -> None:
        """A worker was lost, or is drained."""
        self._prefixes.pop(worker, None)
        self.remove_models(self.models_of(worker))
        self._models.pop(worker, None)

    def models_of(self, worker: WorkerHandle) -> Sequence[str]:
        return list(self._models.get(worker, ()))

    def for_model(self, workers: Iterable[WorkerHandle], need: Need, model_id: str = "") -> Sequence[WorkerHandle]:
        """Workers that may train a model which none has, the best first."""
        number = Counter({worker: len(models) for worker, models in self._models.items()})
        sent_to = self._sent_to.get(model_id)

        def cost(worker: WorkerHandle) -> tuple[bool, bool, bool, int, int]:
            tokens = worker.num_tokens + _MODEL_TOKENS * number[worker] + _load_tokens(worker, need)
            return not worker.is_up, worker.memory.lacks_room(need), worker is not sent_to, tokens, worker.plan.index

        return sorted((one for one in workers if one.plan.trains and not one.is_draining), key=cost)

    def better_worker(
        self, model_id: str, workers: Iterable[WorkerHandle], need: Need, num_bytes: int
    ) -> WorkerHandle | None:
        """The worker that should have a model whose state takes so many bytes; None: it stays where it is.

        That worker trains at least two models fewer, of those that something is asked of, and has memory for this one.
        One that is loading a model is left out: it has yet to report what is free then.
        """
        present = self._workers[model_id]
        num_here = len(self._active(present))
        if num_here < 2:
            return None

        def cost(worker: WorkerHandle) -> tuple[int, bool, int]:
            num_active, has_base_model = len(self._active(worker)), worker.memory.has_base_model(need.base_model)
            load_tokens = _load_tokens(worker, need) if num_active else 0  # it keeps nobody waiting
            return _MODEL_TOKENS * num_active + load_tokens, not has_base_model, worker.plan.index

        others = [
            one
            for one in workers
            if one is not present and one.plan.trains and one.is_steady and not one.is_draining
            if one.memory.has_room(need, _BYTES_OF_STATE * num_bytes) and not self._is_loading(one)
        ]
        best = min(others, key=cost, default=None)
        if best is None or cost(best)[0] + 2 * _MODEL_TOKENS > _MODEL_TOKENS * num_here:
            return None
        return best

    def _is_loading(self, worker: WorkerHandle) -> bool:
        commands = (pending.command for pending in worker.commands.values())
        return worker in self._sent_to.values() or any(isinstance(command, Create | Load) for command in commands)

    def _active(self, worker: WorkerHandle) -> set[str]:
        """The models that a worker trains, or is about to."""
        since = time.monotonic() - _ACTIVE_SECONDS
        commands = (pending.command for pending in worker.commands.values())
        asked = {command.model_id for command in commands if isinstance(command, ModelCommand)}
        active = {name for name in self.models_of(worker) if name in asked or self._used_at[name] > since}
        return active | {model_id for model_id, one in self._sent_to.items() if one is worker}

    def for_sample(self, workers: Iterable[WorkerHandle], request: SampleRequest, need: Need) -> WorkerHandle | None:
        """The worker that generates a sample; None: there is none that samples."""
        prefix = _prefix(request)

        def cost(worker: WorkerHandle) -> tuple[bool, bool, int, int]:
            memory, snapshot_id = worker.memory, request.snapshot_id
            has_weights = (
                memory.has_base_model(need.base_model) if snapshot_id is None else snapshot_id in memory.snapshots
            )
            tokens = worker.num_tokens + _load_tokens(worker, need)
            tokens += 0 if has_weights or snapshot_id is None else _FETCH_TOKENS
            tokens += 0 if prefix in self._prefixes.get(worker, ()) else int(request.prompt_T.size)
            return not worker.is_up, not has_weights and memory.lacks_room(need), tokens, worker.plan.index

        can_sample = [worker for worker in workers if worker.plan.samples and not worker.is_draining]
        chosen = min(can_sample, key=cost, default=None)
        if chosen is not None and len(can_sample) > 1:
            self._remember(chosen, prefix)
        return chosen

    def for_fetch(self, workers: Iterable[WorkerHandle], need: Need) -> WorkerHandle | None:
        """The worker that reads weights first which several may ask for."""

        def cost(worker: WorkerHandle) -> tuple[bool, bool, int, int]:
            tokens = worker.num_tokens + _load_tokens(worker, need)
            return not worker.is_up, worker.memory.lacks_room(need), tokens, worker.plan.index

        return min((one for one in workers if one.plan.samples and not one.is_draining), key=cost, default=None)

    def _remember(self, worker: WorkerHandle, prefix: Prefix) -> None:
        known = self._prefixes.setdefault(worker, OrderedDict())
        known[prefix] = None
        known.move_to_end(prefix)
        if len(known) > _MAX_PREFIXES:
            known.popitem(last=False)


def _load_tokens(worker: WorkerHandle, need: Need) -> int:
    return 0 if worker.memory.has_base_model(need.base_model) else _LOAD_TOKENS


def _prefix(request: SampleRequest) -> Prefix:
    return request.snapshot_id or request.base_model, request.owner, request.prompt_T[:_PREFIX_TOKENS].tobytes()
