"""Where a command goes: rather to a worker that is up, then to one that has memory for it, then where it costs least.

The cost is counted in tokens, as what a worker has to do: those of the commands that are with it, so many for each of
its models, and for what it would have to load, fetch or compute first. Of two that cost the same it is the one with the
smaller number, so that equal inputs give equal places.

A model stays where it was put until that worker is lost or leaves, or another trains fewer. Samples may be drawn
anywhere, with the same tokens.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from cookhouse.engine.contract import Create, Load, ModelCommand, SampleRequest
from cookhouse.server.pool.needs import Need
from cookhouse.server.pool.worker_handle import WorkerHandle

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


class Placement:
    def __init__(self) -> None:
        self._models: dict[str, WorkerHandle] = {}
        self._held: dict[WorkerHandle, dict[str, None]] = {}
        """Models, by worker."""
        self._used_at: dict[str, float] = {}
        """When a command of a model was last sent or answered, on the clock of `time.monotonic`."""
        self._sent_to: dict[str, WorkerHandle] = {}
        """By model that was moved: the worker that has yet to load it."""
        self._prefixes: dict[WorkerHandle, OrderedDict[Prefix, None]] = {}

    def worker_of(self, model_id: str) -> WorkerHandle | None:
        return self._models.get(model_id)

    def put_model(self, model_id: str, worker: WorkerHandle) -> None:
        self.drop_models([model_id])
        self._models[model_id] = worker
        self._held.setdefault(worker, {})[model_id] = None
        self.note_use(model_id)

    def note_use(self, model_id: str) -> None:
        """A worker is given a command of a model, or has answered one."""
        if model_id in self._models:
            self._used_at[model_id] = time.monotonic()

    def send_to(self, model_id: str, worker: WorkerHandle) -> None:
        """Have a model that was taken from one worker go to another."""
        self._sent_to[model_id] = worker

    def drop_models(self, model_ids: Iterable[str]) -> None:
        for model_id in model_ids:
            self._used_at.pop(model_id, None)
            self._sent_to.pop(model_id, None)
            worker = self._models.pop(model_id, None)
            if worker is not None:
                del self._held[worker][model_id]

    def is_sent(self, model_id: str) -> bool:
        """Whether a model was moved, and has yet to be loaded."""
        return model_id in self._sent_to

    def models_of(self, worker: WorkerHandle) -> Sequence[str]:
        return list(self._held.get(worker, ()))

    def num_models(self) -> Counter[WorkerHandle]:
        return Counter({worker: len(held) for worker, held in self._held.items()})

    def for_model(self, workers: Iterable[WorkerHandle], need: Need, model_id: str = "") -> Sequence[WorkerHandle]:
        """Workers that may train a model which none has, the best first."""
        number = self.num_models()
        sent_to = self._sent_to.get(model_id)

        def cost(worker: WorkerHandle) -> tuple[bool, bool, bool, int, int]:
            tokens = worker.num_tokens + _MODEL_TOKENS * number[worker] + _load_tokens(worker, need)
            return not worker.is_up, worker.lacks_room(need), worker is not sent_to, tokens, worker.plan.index

        return sorted((one for one in workers if one.plan.trains and not one.is_draining), key=cost)

    def better_worker(
        self, model_id: str, workers: Iterable[WorkerHandle], need: Need, num_bytes: int
    ) -> WorkerHandle | None:
        """The worker that should have a model whose state takes so many bytes; None: it stays where it is.

        That worker trains at least two models fewer, of those that something is asked of, and has memory for this one.
        One that is loading a model is left out: it has yet to tell what is free then.
        """
        present = self._models[model_id]
        num_here = len(self._active(present))
        if num_here < 2:
            return None

        def cost(worker: WorkerHandle) -> tuple[int, bool, int]:
            num_active, has_base_model = len(self._active(worker)), worker.has_base_model(need.base_model)
            load_tokens = _load_tokens(worker, need) if num_active else 0  # it keeps nobody waiting
            return _MODEL_TOKENS * num_active + load_tokens, not has_base_model, worker.plan.index

        others = [
            one
            for one in workers
            if one is not present and one.plan.trains and one.is_steady and not one.is_draining
            if one.has_room(need, _BYTES_OF_STATE * num_bytes) and not self._is_loading(one)
        ]
        best = min(others, key=cost, default=None)
        if best is None or cost(best)[0] + 2 * _MODEL_TOKENS > _MODEL_TOKENS * num_here:
            return None
        return best

    def _is_loading(self, worker: WorkerHandle) -> bool:
        commands = (call.command for call in worker.commands.values())
        return worker in self._sent_to.values() or any(isinstance(command, Create | Load) for command in commands)

    def _active(self, worker: WorkerHandle) -> set[str]:
        """The models that a worker trains, or is about to."""
        since = time.monotonic() - _ACTIVE_SECONDS
        commands = (call.command for call in worker.commands.values())
        asked = {command.model_id for command in commands if isinstance(command, ModelCommand)}
        active = {name for name in self.models_of(worker) if name in asked or self._used_at[name] > since}
        return active | {model_id for model_id, one in self._sent_to.items() if one is worker}

    def for_sample(self, workers: Iterable[WorkerHandle], request: SampleRequest, need: Need) -> WorkerHandle | None:
        """The worker that draws a sample; None: there is none that samples."""
        prefix = _prefix(request)

        def cost(worker: WorkerHandle) -> tuple[bool, bool, int, int]:
            snapshot_id = request.snapshot_id
            has_weights = (
                worker.has_base_model(need.base_model) if snapshot_id is None else snapshot_id in worker.snapshots
            )
            tokens = worker.num_tokens + _load_tokens(worker, need)
            tokens += 0 if has_weights or snapshot_id is None else _FETCH_TOKENS
            tokens += 0 if prefix in self._prefixes.get(worker, ()) else int(request.prompt_T.size)
            return not worker.is_up, not has_weights and worker.lacks_room(need), tokens, worker.plan.index

        can_sample = [worker for worker in workers if worker.plan.samples and not worker.is_draining]
        chosen = min(can_sample, key=cost, default=None)
        if chosen is not None and len(can_sample) > 1:
            self._remember(chosen, prefix)
        return chosen

    def for_fetch(self, workers: Iterable[WorkerHandle], need: Need) -> WorkerHandle | None:
        """The worker that reads weights first which several may ask for."""

        def cost(worker: WorkerHandle) -> tuple[bool, bool, int, int]:
            tokens = worker.num_tokens + _load_tokens(worker, need)
            return not worker.is_up, worker.lacks_room(need), tokens, worker.plan.index

        return min((one for one in workers if one.plan.samples and not one.is_draining), key=cost, default=None)

    def forget(self, worker: WorkerHandle) -> None:
        """A worker was lost, or has left."""
        self._prefixes.pop(worker, None)
        self.drop_models(self.models_of(worker))
        self._held.pop(worker, None)

    def _remember(self, worker: WorkerHandle, prefix: Prefix) -> None:
        known = self._prefixes.setdefault(worker, OrderedDict())
        known[prefix] = None
        known.move_to_end(prefix)
        if len(known) > _MAX_PREFIXES:
            known.popitem(last=False)


def _load_tokens(worker: WorkerHandle, need: Need) -> int:
    return 0 if worker.has_base_model(need.base_model) else _LOAD_TOKENS


def _prefix(request: SampleRequest) -> Prefix:
    return request.snapshot_id or request.base_model, request.owner, request.prompt_T[:_PREFIX_TOKENS].tobytes()
