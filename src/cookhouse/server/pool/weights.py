"""Published and fetched weights of a pool of workers: who has them, from where they can be had, who waits for them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from cookhouse.engine.contract import Account, Fetch, LoraSpec, SampleRequest
from cookhouse.server.pool.moves import Moves
from cookhouse.server.pool.needs import Need
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.worker_handle import WorkerHandle


@dataclass(frozen=True, slots=True)
class Shape:
    """What weights are of."""

    account: Account
    base_model: str
    lora: LoraSpec

    def need(self, *, trains: bool) -> Need:
        """What a worker needs memory for that has them."""
        return Need(self.base_model, replace(self.lora, seed=0), trains=trains)


class Weights:
    def __init__(self, moves: Moves | None) -> None:
        """`moves` None: there is one worker, and nothing moves."""
        self.moves = moves
        self.shapes: dict[str, Shape] = {}
        """Of published weights, by snapshot."""
        self._origins: dict[str, tuple[WorkerHandle, str]] = {}
        """The worker that published them last, and of which model."""
        self._newest: dict[str, str] = {}
        """The snapshot that was published last, by model."""
        self._fetches: dict[str, Fetch] = {}
        """By snapshot: what a worker that lacks it is told first."""
        self._coming: dict[str, list[PendingCommand]] = {}
        """By snapshot that is to be published again: the samples that wait for it."""

    def fetch(self, snapshot_id: str) -> Fetch | None:
        """What reads weights from a file; None: there is none."""
        moved = None if self.moves is None else self.moves.fetch(snapshot_id)
        return self._fetches.get(snapshot_id, moved)

    def need(self, request: SampleRequest) -> Need:
        """What a worker needs memory for that draws a sample."""
        snapshot_id = request.snapshot_id
        if snapshot_id is None:
            return Need(request.base_model)
        fetch = self.fetch(snapshot_id)
        if fetch is not None:
            return Need.of(fetch)
        shape = self.shapes.get(snapshot_id)
        return Need(request.base_model) if shape is None else shape.need(trains=False)

    def note_published(self, snapshot_id: str, shape: Shape, worker: WorkerHandle, model_id: str) -> None:
        """A worker is about to publish weights of a model."""
        self.shapes[snapshot_id] = shape
        self._origins[snapshot_id] = worker, model_id
        self._newest[model_id] = snapshot_id

    def origin(self, snapshot_id: str) -> WorkerHandle | None:
        """The worker that published weights last."""
        return self._origins[snapshot_id][0] if snapshot_id in self._origins else None

    def newest(self, model_id: str) -> str | None:
        """The snapshot that a model has published last."""
        return self._newest.get(model_id)

    def is_needed(self, snapshot_id: str) -> bool:
        """Whether what was moved is all that there may be of weights which are likely to be asked for: their origin has
        none any more, no other file has them, and their model has published no newer ones.
        """
        origin, model_id = self._origins[snapshot_id]
        stays = snapshot_id in origin.snapshots and not origin.is_draining
        is_elsewhere = stays or snapshot_id in self._fetches
        return not is_elsewhere and self._newest.get(model_id) == snapshot_id

    def note_file(self, fetch: Fetch) -> Sequence[PendingCommand]:
        """Take note of a file; the samples that waited for it."""
        self._fetches[fetch.snapshot_id] = fetch
        return self._coming.pop(fetch.snapshot_id, [])

    def forget_file(self, snapshot_id: str) -> Fetch | None:
        """What read it, if there was one."""
        return self._fetches.pop(snapshot_id, None)

    def drop_file(self, snapshot_id: str) -> None:
        """Read weights from no file that there is: it is damaged, and whoever holds them writes another."""
        self._fetches.pop(snapshot_id, None)
        if self.moves is not None:
            self.moves.drop(snapshot_id)

    def urls(self) -> Collection[str]:
        """Of the files that were noted."""
        return {fetch.url for fetch in self._fetches.values()}

    def expect(self, snapshot_id: str) -> None:
        self._coming.setdefault(snapshot_id, [])

    def waits(self, snapshot_id: str, call: PendingCommand | None = None) -> bool:
        """Whether weights are to be published again; a sample then waits for them."""
        if snapshot_id not in self._coming:
            return False
        if call is not None:
            self._coming[snapshot_id].append(call)
        return True

    def come(self, snapshot_id: str) -> Sequence[PendingCommand]:
        """They are published again, or never will be: the samples that waited."""
        return self._coming.pop(snapshot_id, [])

    def forget(self, snapshot_id: str) -> None:
        """Nobody samples from them any more."""
        self._fetches.pop(snapshot_id, None)
        self.shapes.pop(snapshot_id, None)
        _, model_id = self._origins.pop(snapshot_id, (None, ""))
        if self._newest.get(model_id) == snapshot_id:
            del self._newest[model_id]
        if self.moves is not None and self.moves.fetch(snapshot_id) is not None:
            self.moves.drop(snapshot_id)

    def only_at(self, worker: WorkerHandle, workers: Iterable[WorkerHandle]) -> Sequence[str]:
        """Weights that go with a worker, in no file and with no other: in the order of their publication."""
        others: set[str] = set().union(*(one.snapshots for one in workers if one is not worker))
        names = [name for name in worker.snapshots - others if self.fetch(name) is None]
        places = {name: place for place, name in enumerate(self.shapes)}
        return sorted(names, key=lambda name: (places.get(name, -1), name))

    def holder(self, snapshot_id: str, workers: Iterable[WorkerHandle]) -> WorkerHandle | None:
        """A worker that has weights, rather one that is up, and the one that published them."""
        holders = [worker for worker in workers if snapshot_id in worker.snapshots]
        origin = self.origin(snapshot_id)
        return min(holders, key=lambda worker: (not worker.is_up, worker is not origin), default=None)
