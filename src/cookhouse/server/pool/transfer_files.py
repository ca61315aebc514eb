"""Files of weights on their way between workers: written by one that has them in memory, read by others."""

import uuid
from collections.abc import Collection
from pathlib import Path

from cookhouse.engine.contract import Fetch, Url
from cookhouse.server.pool.leftovers import delete_written


class TransferFiles:
    """Of files that are there and may be read; the oldest go where they take too much."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._files: dict[str, tuple[Fetch, int]] = {}
        """By snapshot, the oldest first; with their bytes."""

    def url(self, snapshot_id: str) -> Url:
        """URL to which a file is written, each time another: a worker that is drained may still write the one before.
        The identity is the server's own.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (self._folder / f"{snapshot_id}.{uuid.uuid4().hex}").absolute().as_uri()

    def fetch(self, snapshot_id: str) -> Fetch | None:
        """Command that reads a file."""
        found = self._files.get(snapshot_id)
        return None if found is None else found[0]

    def add(self, fetch: Fetch, num_bytes: int) -> None:
        self._files[fetch.snapshot_id] = fetch, num_bytes

    def drop(self, snapshot_id: str) -> None:
        """Delete a file, if there is one."""
        found = self._files.pop(snapshot_id, None)
        if found is not None:
            delete_written([found[0].url])

    @property
    def names(self) -> Collection[str]:
        """Of the weights that have files."""
        return self._files.keys()

    def make_room(self, used: Collection[str]) -> list[str]:
        """Delete the oldest files, but for those of weights in use, beyond the most that they may take; the newest
        stays.
        """
        dropped = []
        total = sum(num_bytes for _, num_bytes in self._files.values())
        for snapshot_id, (_, num_bytes) in list(self._files.items())[:-1]:
            if total <= self._max_bytes:
                break
            if snapshot_id not in used:
                total -= num_bytes
                self.drop(snapshot_id)
                dropped.append(snapshot_id)
        return dropped
