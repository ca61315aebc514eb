"""Published weights of a pool of workers: who has them, from where they can be had, who waits for them."""

import logging
from collections.abc import Collection, Iterable, Sequence

from cookhouse.engine.contract import Fetch, Publish, Sample, SampleRequest
from cookhouse.server.pool.memory import Need, Shape
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.transfer_files import TransferFiles
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.pool.workers import Workers

_log = logging.getLogger(__name__)


class PublishedWeights:
    """By snapshot."""

    def __init__(self, workers: Workers, files: TransferFiles | None) -> None:
        """`files` None: there is one worker, and nothing moves."""
        self.files = files
        self._workers = workers
        self._shapes: dict[str, Shape] = {}
        self._origins: dict[str, tuple[WorkerHandle, str]] = {}
        """The worker that published them last, and of which model."""
        self._newest: dict[str, str] = {}
        """The snapshot that was published last, by model."""
        self._fetches: dict[str, Fetch] = {}
        """What a worker that lacks them is sent first."""
        self._expected: dict[str, list[PendingCommand]] = {}
        """Of those that are to be published again: the samples that wait for them."""

    def shape(self, snapshot_id: str) -> Shape | None:
        """Shape of weights; None: they were not published here."""
        return self._shapes.get(snapshot_id)

    def fetch(self, snapshot_id: str) -> Fetch | None:
        """Command that reads weights from a file; None: there is none."""
        transferred = None if self.files is None else self.files.fetch(snapshot_id)
        return self._fetches.get(snapshot_id, transferred)

    def urls(self) -> Collection[str]:
        """Of the files that were noted."""
        return {fetch.url for fetch in self._fetches.values()}

    def need(self, request: SampleRequest) -> Need:
        """Need of a worker that generates a sample."""
        snapshot_id = request.snapshot_id
        if snapshot_id is None:
            return Need(request.base_model)
        fetch = self.fetch(snapshot_id)
        if fetch is not None:
            return Need.of(fetch)
        shape = self._shapes.get(snapshot_id)
        return Need(request.base_model) if shape is None else shape.need(trains=False)

    def holder(self, snapshot_id: str) -> WorkerHandle | None:
        """A worker that has weights, rather one that is up, and the one that published them."""
        holders = [worker for worker in self._workers if snapshot_id in worker.memory.snapshots]
        origin, _ = self._origins.get(snapshot_id, (None, ""))
        return min(holders, key=lambda worker: (not worker.is_up, worker is not origin), default=None)

    def is_held(self, snapshot_id: str) -> bool:
        """True if weights are with a worker, or in a file."""
        in_file = self.fetch(snapshot_id) is not None
        return in_file or any(snapshot_id in worker.memory.snapshots for worker in self._workers)

    def can_come(self, snapshot_id: str) -> bool:
        """True if weights are somewhere, or will be."""
        return snapshot_id in self._expected or self.is_held(snapshot_id)

    def only_at(self, worker: WorkerHandle, workers: Iterable[WorkerHandle]) -> Sequence[str]:
        """Weights that go with a worker, in no file and with no other: in the order of their publication."""
        others: set[str] = set().union(*(one.memory.snapshots for one in workers if one is not worker))
        names = [name for name in worker.memory.snapshots - others if self.fetch(name) is None]
        places = {name: place for place, name in enumerate(self._shapes)}
        return sorted(names, key=lambda name: (places.get(name, -1), name))

    def is_needed(self, snapshot_id: str) -> bool:
        """True if what was transferred is all that there may be of weights which are likely to be asked for: their
        origin has none any more, no other file has them, and their model has published no newer ones.
        """
        origin, model_id = self._origins[snapshot_id]
        stays = snapshot_id in origin.memory.snapshots and not origin.is_draining
        is_elsewhere = stays or snapshot_id in self._fetches
        return not is_elsewhere and self._newest.get(model_id) == snapshot_id

    def note_published(self, snapshot_id: str, shape: Shape, worker: WorkerHandle, model_id: str) -> None:
        """A worker is about to publish weights of a model."""
        self._shapes[snapshot_id] = shape
        self._origins[snapshot_id] = worker, model_id
        self._newest[model_id] = snapshot_id

    def copies_beside(self, worker: WorkerHandle, command: Publish) -> Sequence[tuple[WorkerHandle, str]]:
        """Weights of a model that another worker, which it was on, would not evict by itself: a worker publishes newer
        ones, or these once more.
        """
        newest = self._newest.get(command.model_id, command.snapshot_id)
        copies = []
        for snapshot_id in {command.snapshot_id, newest}:
            origin, _ = self._origins.get(snapshot_id, (None, ""))
            is_copy = snapshot_id == command.snapshot_id or self.fetch(snapshot_id) is not None
            if origin is not None and origin is not worker and snapshot_id in origin.memory.snapshots and is_copy:
                copies.append((origin, snapshot_id))
        return copies

    def expect(self, snapshot_id: str) -> None:
        """Weights are to be published again."""
        self._expected.setdefault(snapshot_id, [])

    def wait(self, snapshot_id: str, pending: PendingCommand) -> bool:
        """Have a sample wait for weights that are to be published again; False: they are not."""
        if snapshot_id not in self._expected:
            return False
        self._expected[snapshot_id].append(pending)
        return True

    def end_wait(self, snapshot_id: str) -> Sequence[PendingCommand]:
        """Weights are published again, or never will be: the samples that waited."""
        return self._expected.pop(snapshot_id, [])

    def note_file(self, fetch: Fetch) -> Sequence[PendingCommand]:
        """Take note of a file; the samples that waited for it."""
        self._fetches[fetch.snapshot_id] = fetch
        return self.end_wait(fetch.snapshot_id)

    def forget_file(self, snapshot_id: str) -> Fetch | None:
        """A file is going to be deleted; what read it, if there was one."""
        return self._fetches.pop(snapshot_id, None)

    def note_evicted(self, worker: WorkerHandle, snapshot_id: str) -> None:
        """A worker has evicted weights, which it is given again where others have them."""
        is_elsewhere = any(snapshot_id in one.memory.snapshots for one in self._workers if one is not worker)
        if is_elsewhere or self.fetch(snapshot_id) is not None:
            worker.memory.evict(snapshot_id)

    def drop_damaged(self, pending: PendingCommand, worker: WorkerHandle) -> bool:
        """Give up weights that a worker found damaged when it was to generate a sample, where that can be tried once
        more: with what another worker holds, or, where it was the worker's own copy, with a file.
        """
        command = pending.command
        if not isinstance(command, Sample) or command.request.snapshot_id is None or pending.is_tried_again:
            return False
        snapshot_id = command.request.snapshot_id
        origin, _ = self._origins.get(snapshot_id, (None, ""))
        is_own = origin is worker
        is_held = any(snapshot_id in one.memory.snapshots for one in self._workers if one is not worker)
        if not is_held and not (is_own and self.fetch(snapshot_id) is not None):
            return False
        if not is_own:  # the file is damaged, and is written anew
            self._fetches.pop(snapshot_id, None)
            if self.files is not None:
                self.files.drop(snapshot_id)
        pending.is_tried_again = True
        worker.memory.evict(snapshot_id)
        _log.warning("weights of a sampling client are damaged at %s, and are had from elsewhere again", worker.name)
        return True

    def forget(self, snapshot_id: str) -> None:
        """Nobody samples from them any more."""
        self._fetches.pop(snapshot_id, None)
        self._shapes.pop(snapshot_id, None)
        _, model_id = self._origins.pop(snapshot_id, (None, ""))
        if self._newest.get(model_id) == snapshot_id:
            del self._newest[model_id]
        if self.files is not None and self.files.fetch(snapshot_id) is not None:
            self.files.drop(snapshot_id)
        for worker in self._workers:
            worker.memory.forget(snapshot_id)
