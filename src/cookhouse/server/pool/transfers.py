"""Transfers of published weights from one worker to others.

sample ──► its worker has the weights ──► generated
             ├── they are in a file ──► Fetch, then generated
             └── another worker has them ──► SaveSnapshot there ──► a file ──► the sample goes on
"""

import asyncio
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from cookhouse.engine.contract import Account, Fetch, Output, Saved, SaveSnapshot
from cookhouse.errors import InputError
from cookhouse.server.pool.memory import Shape
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.transfer_files import TransferFiles
from cookhouse.server.pool.weights import PublishedWeights
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.pool.workers import Workers
from cookhouse.server.refusals import LostError


@dataclass(slots=True)
class _Writing:
    """Weights that a worker writes for others."""

    shape: Shape
    holder: WorkerHandle
    waiting: list[PendingCommand] = field(default_factory=list)
    """Samples."""


class Transfers:
    """Live on the event loop."""

    def __init__(self, weights: PublishedWeights, workers: Workers) -> None:
        self._weights = weights
        self._workers = workers
        self._writing: dict[str, _Writing] = {}
        """By snapshot."""

    def is_writing(self, snapshot_ids: Iterable[str]) -> bool:
        """True if any of some weights are being written for others."""
        return not self._writing.keys().isdisjoint(snapshot_ids)

    def give(self, snapshot_id: str, worker: WorkerHandle) -> bool:
        """Have a worker read weights that it lacks, from a file if there is one; False: they are yet to be written. Of
        weights that are unknown the worker says that there are none.
        """
        if snapshot_id in worker.memory.snapshots:
            return True
        fetch = self._weights.fetch(snapshot_id)
        if fetch is not None:
            self._fetch(worker, fetch)
        return fetch is not None or self._weights.shape(snapshot_id) is None

    def write(self, snapshot_id: str, holder: WorkerHandle) -> "asyncio.Future[Output]":
        """Have a worker write weights for others; call `note_written` when it has answered."""
        shape = self._weights.shape(snapshot_id)
        assert shape is not None
        self._writing[snapshot_id] = _Writing(shape, holder)
        save = SaveSnapshot(
            command_id=uuid.uuid4().hex,
            account=shape.account,
            snapshot_id=snapshot_id,
            url=self._files.url(snapshot_id),
        )
        return holder.ask(save)

    def wait(self, snapshot_id: str, pending: PendingCommand) -> None:
        """Have a sample wait for weights that are being written."""
        self._writing[snapshot_id].waiting.append(pending)

    def note_written(
        self, snapshot_id: str, answer: "asyncio.Future[Output]", sampled: Collection[str]
    ) -> Sequence[PendingCommand]:
        """Weights were written, or could not be: the samples that waited. Files that take too much are deleted, but for
        those of `sampled` weights, and of those that are needed.
        """
        writing = self._writing.pop(snapshot_id)
        if answer.cancelled():
            return ()
        error = answer.exception()
        if error is None:
            self._note_file(snapshot_id, writing.shape, answer.result())
            self._make_room(sampled)
        if isinstance(error, InputError):  # they were evicted
            writing.holder.memory.evict(snapshot_id)
        return writing.waiting

    def forget_copies(self, snapshot_id: str, account: Account) -> None:
        """Have workers that read a file which is deleted forget what they read: they could not read it again."""
        for worker in self._workers:
            if snapshot_id in worker.memory.snapshots and snapshot_id in worker.memory.fetched:
                worker.forget_snapshot(account, snapshot_id)

    @property
    def _files(self) -> TransferFiles:
        assert self._weights.files is not None
        return self._weights.files

    def _fetch(self, worker: WorkerHandle, fetch: Fetch) -> None:
        """A failure of it is that of the samples behind it; the next ones try again."""
        answer = worker.ask(replace(fetch, command_id=uuid.uuid4().hex))
        worker.memory.note_fetched(fetch.snapshot_id)

        def look(done: asyncio.Future[Output]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, LostError):
                # Not forgotten there: the samples behind it are yet to be failed.
                worker.memory.evict(fetch.snapshot_id)

        answer.add_done_callback(look)

    def _note_file(self, snapshot_id: str, shape: Shape, saved: Output) -> None:
        assert isinstance(saved, Saved)
        fetch = Fetch(
            command_id="",
            account=Account(shape.account.owner, ""),
            snapshot_id=snapshot_id,
            base_model=shape.base_model,
            lora=shape.lora,
            url=saved.url,
            sha256=saved.sha256 or None,
        )
        self._files.add(fetch, sum(saved.sizes.values()))
        if self._weights.shape(snapshot_id) is None:  # forgotten meanwhile
            self._files.drop(snapshot_id)

    def _make_room(self, sampled: Collection[str]) -> None:
        used = {name for name in self._files.names if name in sampled or self._weights.is_needed(name)}
        for dropped in self._files.make_room(used):
            shape = self._weights.shape(dropped)
            assert shape is not None
            self.forget_copies(dropped, shape.account)
