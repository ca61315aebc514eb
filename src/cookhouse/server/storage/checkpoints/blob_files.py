"""Files of checkpoints in a blob store, and marks by which the next server finds what a crash has left there.

    save      saving/<name> ──► files/<name>/… ──► row in the store ──► saving/<name> removed
    delete    going/<name> ──► row deleted ──► files/<name>/… removed ──► going/<name> removed

The row decides: files with a row are a checkpoint. Files that have a mark and no row are deleted: those `going` by any
server, at any time, since they had a row; those `saving` only where no other server can be writing them. Files without
row and mark are left alone: the database that knows them was lost, or replaced.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cookhouse.blobs import DamagedBlobError, open_blobs, put_folder
from cookhouse.engine.contract import DamagedError
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.files import make_folder
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.store.rows import CheckpointRow

_log = logging.getLogger(__name__)
_FILES = "files"
_OWNER = "owner"
"""The blob that has the id of the service: whoever else wrote marks there would delete its files."""
Mark = Literal["saving", "going"]


def id_in(name: str) -> str:
    """Of the checkpoint whose files have a name."""
    return name.partition(".")[0]


def files_name(row: CheckpointRow) -> str:
    """Name under which the files of a checkpoint are kept. Its time is part of it: where a server saves what one that
    it took over from was just saving, under the same id and perhaps to the same bytes, neither writes or deletes the
    other's.
    """
    content = json.dumps([float(row.created_at).hex(), sorted((row.sha256 or {}).items())])
    return f"{row.checkpoint_id}.{hashlib.sha256(content.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Names in a blob store, as of one moment."""

    saving: Sequence[str]
    going: Sequence[str]
    files: Sequence[str]


class BlobFiles:
    """Blocking calls, from any thread."""

    def __init__(self, url: str) -> None:
        """Open a URL of `open_blobs`.

        Raises:
            InputError: it is none, or the package of its scheme is missing.
        """
        if "://" not in url:
            raise InputError(f"{url!r} is no place for checkpoints; write s3://BUCKET/FOLDER, or another URL")
        self.url = url
        self._blobs = open_blobs(url)

    def check(self) -> None:
        """Write, read and delete a blob.

        Raises:
            InputError: that is not allowed, or the URL leads nowhere.
            ServiceError: the store failed.
        """
        key = f"trying/{uuid.uuid4().hex}"
        with self._usable():
            self._blobs.put(key, b"cookhouse")
            self._blobs.get(key)
            self._blobs.delete(key)

    def own(self, service_id: str) -> None:
        """Write whose the files are, or see that they are the service's. Raises as `check`."""
        with self._usable():
            if not self._blobs.exists(_OWNER):
                self._blobs.put(_OWNER, service_id.encode())
            found = self._blobs.get(_OWNER).decode(errors="replace")
        if found != service_id:
            raise InputError(
                f"the checkpoints at {self.url} are those of another database: {self._blobs.address(_OWNER)} says "
                f"{found!r}, and this database {service_id}; each would delete files of the other. Give every database "
                f"a folder of its own. If this one takes the place of the other, which is lost, delete {_OWNER} there"
            )

    def put(self, row: CheckpointRow, folder: Path) -> None:
        """Mark the files of a checkpoint, and put them.

        Raises:
            StorageBusyError: the store is away.
            StorageError: it refuses them.
        """
        with _told(f"{row.path} could not be written"):
            self._blobs.put(f"saving/{files_name(row)}", b"")
            put_folder(self._blobs, folder, f"{_FILES}/{files_name(row)}")

    def mark_going(self, row: CheckpointRow) -> None:
        """Say that the row of a checkpoint is about to be deleted. Raises as `put`."""
        with _told(f"{row.path} could not be deleted"):
            self._blobs.put(f"going/{files_name(row)}", b"")

    def unmark(self, mark: Mark, name: str) -> None:
        """Take a mark away, if it is there. One that cannot be is left to a start."""
        try:
            if self._blobs.exists(f"{mark}/{name}"):
                self._blobs.delete(f"{mark}/{name}")
        except CookhouseError as error:
            _log.warning("%s stays until a start: %s", self._blobs.address(f"{mark}/{name}"), error)

    def remove(self, mark: Mark, name: str) -> bool:
        """Delete files that have no row, and their mark behind them. Whether that could be done."""
        try:
            for key in self._blobs.list(f"{_FILES}/{name}"):
                self._blobs.delete(key)
            if self._blobs.exists(f"{mark}/{name}"):
                self._blobs.delete(f"{mark}/{name}")
        except CookhouseError as error:
            _log.warning("%s waits to be deleted: %s", self._blobs.address(f"{_FILES}/{name}"), error)
            return False
        return True

    def fetch(self, row: CheckpointRow, folder: Path) -> None:
        """Write the files of a checkpoint to a new folder.

        Raises:
            DamagedError: one is missing, or is not what was put.
            StorageBusyError: the store is away.
            StorageError: it refuses them.
            OSError: the disk is full, or failed otherwise.
        """
        make_folder(folder)
        for name in row.sha256 or {}:
            make_folder((folder / name).parent, exist_ok=True)
            self._fetch(row, f"{_FILES}/{files_name(row)}/{name}", folder / name)

    def _fetch(self, row: CheckpointRow, key: str, path: Path) -> None:
        with _told(f"{row.path} cannot be read now"):
            is_there = self._blobs.exists(key)
            if is_there:
                try:
                    self._blobs.fetch(key, path)
                    return
                except DamagedBlobError as error:
                    damage = str(error)
        raise DamagedError(damage if is_there else f"{self._blobs.address(key)} is gone")

    def going(self) -> Sequence[str]:
        """Names of files whose row was to be deleted. Raises CookhouseError as `BlobStore.list`."""
        return self._names("going")

    def found(self) -> Found:
        """All there is. Raises as `going`."""
        return Found(saving=self._names("saving"), going=self._names("going"), files=self._names(_FILES))

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError(f"checkpoints cannot be kept at {self.url}: {error}") from error
        except ServiceError as error:
            raise ServiceError(f"checkpoints cannot be kept at {self.url}: {error}") from error

    def _names(self, prefix: str) -> Sequence[str]:
        return sorted({key.split("/")[1] for key in self._blobs.list(prefix)})


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Tell a client of an error without the names in it, which the log has."""
    try:
        yield
    except InputError as error:
        _log.error("%s: %s", what, error)
        raise StorageError(
            f"{what}: the service's object storage refuses it; tell the service's operator, whose log has the details"
        ) from error
    except ServiceError as error:  # it is away for moments
        _log.warning("%s: %s", what, error)
        raise StorageBusyError(
            f"{what}: the service's object storage is away; try again, and if that lasts, tell the service's operator, "
            "whose log has the details"
        ) from error
