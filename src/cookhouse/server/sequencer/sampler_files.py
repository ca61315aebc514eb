"""Files of published weights: written next to the states of models, and dropped beyond what they may take."""

import asyncio
import uuid
from collections import deque
from collections.abc import Mapping, Sequence

from cookhouse.engine.contract import Account, Fetch, Output, Saved, SaveSnapshot
from cookhouse.engine.contract.urls import shared_folder
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import DiskError
from cookhouse.server.sessions.sessions import Model, SamplerWeights
from cookhouse.server.storage.journal import Journal, SetSamplerFile


class SamplerFiles:
    """Of a server with a journal. Lives on the event loop."""

    def __init__(self, journal: Journal, pool: Pool, max_bytes: int) -> None:
        self._pool = pool
        self._commit = journal.commit
        self._folders = journal.folders
        self._max_bytes = max_bytes
        self._files: deque[tuple[SamplerWeights, int]] = deque()
        """With their bytes; the oldest first."""

    def note(self, snapshot: SamplerWeights, num_bytes: int, sha256: Mapping[str, str] | None) -> None:
        """Take note of a folder of published weights, and of what its files have to be."""
        self._files.append((snapshot, num_bytes))
        snapshot.has_file, snapshot.sha256 = True, sha256
        self._pool.note_file(self._fetch(snapshot))

    def commands(self, model: Model, snapshots: Mapping[str, SamplerWeights]) -> Sequence[SaveSnapshot]:
        """Commands that write published weights that have no file yet; blocking."""
        return [
            SaveSnapshot(
                command_id=uuid.uuid4().hex,
                account=Account(model.owner, model.session_id),
                snapshot_id=snapshot_id,
                url=self._folders.new_sampler(snapshot_id).as_uri(),
            )
            for snapshot_id in snapshots
            if not self._folders.sampler(snapshot_id).exists()
        ]

    def keep(
        self, written: Mapping[str, Output | BaseException], snapshots: Mapping[str, SamplerWeights]
    ) -> tuple[Mapping[str, int], Mapping[str, Mapping[str, str] | None]]:
        """Name the weights that were written; what all that have files take, and their digests. Blocking."""
        digests = {name: snapshot.sha256 for name, snapshot in snapshots.items()}
        try:
            for snapshot_id, output in written.items():
                if isinstance(output, Saved) and (folder := shared_folder(output.url)) is not None:
                    self._folders.keep_sampler(snapshot_id, folder)
                    digests[snapshot_id] = output.sha256 or None
            return self._folders.sampler_bytes(snapshots), digests
        except OSError as error:
            raise DiskError(error.strerror or str(error)) from error

    async def drop(self) -> None:
        """Delete weights beyond what they may take, the oldest first; not those that are being sampled from, nor the
        newest.
        """
        total = sum(num_bytes for _, num_bytes in self._files)
        sampled = self._pool.sampled()
        for snapshot, num_bytes in list(self._files)[:-1]:
            if total <= self._max_bytes:
                return
            if snapshot.snapshot_id in sampled or (snapshot, num_bytes) not in self._files:
                continue
            self._files.remove((snapshot, num_bytes))
            total -= num_bytes
            snapshot.has_file = False
            self._pool.forget_file(snapshot.snapshot_id)
            if not self._pool.weights.is_held(snapshot.snapshot_id):
                snapshot.lose("and its file made room for newer ones")
            await self._commit.keep(SetSamplerFile(snapshot.sampler_id, has_file=False))
            await asyncio.to_thread(self._folders.delete, self._folders.sampler(snapshot.snapshot_id))
            sampled = self._pool.sampled()  # more may have begun meanwhile

    def forget(self, snapshots: Sequence[SamplerWeights]) -> None:
        """Count files no longer, which are deleted with their session."""
        forgotten = {snapshot.snapshot_id for snapshot in snapshots}
        self._files = deque(one for one in self._files if one[0].snapshot_id not in forgotten)

    def _fetch(self, snapshot: SamplerWeights) -> Fetch:
        assert snapshot.lora is not None
        return Fetch(
            command_id=uuid.uuid4().hex,
            account=Account(snapshot.owner, ""),
            snapshot_id=snapshot.snapshot_id,
            base_model=snapshot.base_model,
            lora=snapshot.lora,
            url=self._folders.sampler(snapshot.snapshot_id).as_uri(),
            sha256=snapshot.sha256,
        )
