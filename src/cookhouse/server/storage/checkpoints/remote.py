"""Checkpoints whose files are kept in a blob store, and the copies of them that this server reads and writes.

A copy is made where files are needed, under the name that they have there, and dropped when nobody has used it for an
hour and no sampling client has its weights. The folder of copies is one server's alone.
"""

import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.checksums import verify
from cookhouse.errors import CookhouseError
from cookhouse.files import sync
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.checkpoints.blob_files import BlobFiles, Found, files_name, id_in
from cookhouse.server.storage.checkpoints.leftovers import unfinished
from cookhouse.server.storage.store.identity import service_id
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store

_log = logging.getLogger(__name__)
_IDLE_SECONDS = 3600.0
"""A copy that nobody has used for so long is dropped; and how often it is looked for what other servers left."""
_MAX_SHOWN = 3
_NUM_READERS = 4


class RemoteCheckpoints:
    """Blocking calls, from any thread."""

    def __init__(self, url: str, folder: Path, store: Store) -> None:
        """`folder`: of the copies, which is made if need be. Raises as `BlobFiles`, and its `check` and `own`."""
        self._files = BlobFiles(url)
        self._files.check()
        self._files.own(service_id(store.database))
        self._folder = folder
        self._store = store
        self._lock = threading.Lock()
        """Held while it is decided whether a copy stays."""
        self._num_readers: Counter[str] = Counter()
        self.readers = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="fetching checkpoints")
        """Threads that may wait for the store: it is away for minutes, and others have something to do."""
        self._looked_at = -_IDLE_SECONDS
        """When it was last looked for deletions that have not ended, by `time.monotonic`."""
        private_folder(folder)
        for path in folder.iterdir():
            if not self._has_row(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Begin no further fetches."""
        self.readers.shutdown(wait=False, cancel_futures=True)

    @property
    def url(self) -> str:
        return self._files.url

    def new_folder(self) -> Path:
        """Folder to which a new checkpoint is to be written: `keep` makes it a copy."""
        return unfinished(self._folder)

    def folder_of(self, row: CheckpointRow) -> Path:
        """Folder of the copy of a checkpoint, if there is one."""
        return self._folder / files_name(row)

    # Saving: `upload`, then the row, then `keep`.

    def upload(self, row: CheckpointRow, folder: Path, replaced: CheckpointRow | None) -> None:
        """Put the files of a checkpoint that has no row yet, and whose row will take the place of another.

        Raises:
            StorageError: the store is away, or refuses them; `withdraw` them.
        """
        self._files.put(row, folder)
        if replaced is not None:
            self._files.mark_going(replaced)

    def withdraw(self, row: CheckpointRow, replaced: CheckpointRow | None) -> None:
        """Delete files that get no row; what cannot be is left to a start."""
        self._files.remove("saving", files_name(row))
        if replaced is not None:
            self._files.unmark("going", files_name(replaced))

    def keep(self, row: CheckpointRow, folder: Path) -> None:
        """Make what has been uploaded, and has its row now, a copy."""
        self._files.unmark("saving", files_name(row))
        try:
            self._place(folder, row)
        except OSError as error:  # it is fetched when it is needed
            _log.warning("no copy of %s was kept: %s", row.path, error)

    # Reading.

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Keep a copy while the block reads it; it need not be there yet."""
        with self._lock:
            self._num_readers[folder.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_readers[folder.name] -= 1
                self._num_readers += Counter()  # forgets those that are read no more

    def bring(self, row: CheckpointRow) -> bool:
        """See that there is a copy of a checkpoint. Whether it has been fetched now, and so is as it was saved.

        Raises:
            DamagedError: files are missing in the store, or are not what was put.
            StorageError: the store is away, or refuses them; or the disk has no room.
        """
        folder = self.folder_of(row)
        with self._lock:
            if folder.is_dir():
                os.utime(folder)
                return False
        new = self.new_folder()
        try:
            self._files.fetch(row, new)
            verify(new, row.sha256)
            self._place(new, row)
        except OSError as error:
            raise StorageBusyError(
                f"{row.path} cannot be read now: {error.strerror or error}; free space on the service's disk, and try "
                "again"
            ) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return True

    def verify(self, row: CheckpointRow) -> None:
        """See that there is a copy of a checkpoint, and that it is what was saved. Raises as `bring`."""
        if self.bring(row):
            return
        try:
            verify(self.folder_of(row), row.sha256)
        except DamagedError as error:
            _log.warning("a copy of %s is fetched again: %s", row.path, error)
            self._drop(self.folder_of(row))
            self.bring(row)

    # Deleting.

    def delete(self, row: CheckpointRow) -> None:
        """Delete a checkpoint: it is gone once its row is.

        Raises:
            StorageError: the blob store or the database is away; nothing has changed.
        """
        try:
            self._files.mark_going(row)
            self._store.delete_checkpoint_row(row.checkpoint_id)
        except StorageError:
            self._looked_at = -_IDLE_SECONDS
            raise
        self._delete_files(files_name(row))
        self._drop(self.folder_of(row))

    def sweep(self, read: Collection[str] = ()) -> None:
        """Drop copies that nobody uses or may use, and finish deletions, at times also those of other servers.

        `read`: URLs of copies that workers may read again whenever they need room, so that they stay.
        """
        there = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        kept = self._store.checkpoint_ids() if there else set()
        for path in [path for path in there if path.absolute().as_uri() not in read]:
            self._drop(path, only_if=partial(self._is_unused, path, kept))
        if time.monotonic() - self._looked_at >= _IDLE_SECONDS:
            self._looked_at = time.monotonic()
            self._finish_deletions()

    # What crashes left.

    def found(self) -> Found | None:
        """Find what crashes left in the blob store; None, and a warning, where it fails."""
        try:
            return self._files.found()
        except CookhouseError as error:
            _log.warning("what a crash may have left at %s is looked for at the next start: %s", self.url, error)
            return None

    def tidy(self, found: Found) -> None:
        """Finish what other servers left of what was found, none of which is writing it any more."""
        for name in found.saving:
            if self._has_row(name):
                self._files.unmark("saving", name)
            else:
                self._files.remove("saving", name)
        for name in found.going:
            if self._has_row(name):
                self._files.unmark("going", name)
            else:
                self._delete_files(name)
        marked, kept = {*found.saving, *found.going}, self._store.checkpoint_ids()
        strays = [name for name in found.files if name not in marked and id_in(name) not in kept]
        if strays:
            _log.warning(
                "%d checkpoints at %s are not in the database, which was lost or replaced, or is another server's; "
                "they stay there: files/%s%s",
                len(strays),
                self.url,
                ", files/".join(strays[:_MAX_SHOWN]),
                ", …" if len(strays) > _MAX_SHOWN else "",
            )

    def _finish_deletions(self) -> None:
        try:
            going = self._files.going()
        except CookhouseError as error:
            _log.warning("deletions at %s wait to be finished: %s", self.url, error)
            self._looked_at = -_IDLE_SECONDS
            return
        for name in going:
            if not self._has_row(name):
                self._delete_files(name)

    def _delete_files(self, name: str) -> None:
        if not self._files.remove("going", name):
            self._looked_at = -_IDLE_SECONDS  # by the next sweep

    def _has_row(self, name: str) -> bool:
        row = self._store.checkpoint_with_id(id_in(name))
        return row is not None and files_name(row) == name

    def _place(self, new: Path, row: CheckpointRow) -> None:
        """Make a folder the copy of a checkpoint, unless another thread has made one meanwhile."""
        with self._lock:
            if not self.folder_of(row).exists():
                new.rename(self.folder_of(row))
        shutil.rmtree(new, ignore_errors=True)
        sync(self._folder)

    def _is_unused(self, copy: Path, kept: Collection[str]) -> bool:
        is_idle = time.time() - copy.stat().st_mtime > _IDLE_SECONDS
        return (is_idle or id_in(copy.name) not in kept) and not self._num_readers[copy.name]

    def _drop(self, copy: Path, only_if: Callable[[], bool] = lambda: True) -> None:
        """Delete a copy, whole for who looks for it."""
        going = self.new_folder()
        try:
            with self._lock:
                if not only_if():
                    return
                copy.rename(going)
            shutil.rmtree(going)
        except FileNotFoundError:  # another thread has
            return
        except OSError as error:
            _log.warning("%s, a copy of a checkpoint, cannot be deleted: %s", copy, error)
