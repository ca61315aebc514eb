"""Deletions of checkpoints in a folder. They need no room on the disk: what cannot be done on a full one is done later.

<id> renamed to <id>.deleted ──then──► emptied ──then──► row deleted, and the empty folder
"""

import contextlib
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.checkpoints.leftovers import HEX
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store

_log = logging.getLogger(__name__)
_DELETED = ".deleted"


class Deletions:
    """Blocking; may be called from any thread."""

    def __init__(self, folder: Path, store: Store, remote: RemoteCheckpoints | None) -> None:
        """`remote`: where those lie that do not lie in the folder."""
        self._folder = folder
        self._store = store
        self._remote = remote
        self._lock = threading.Lock()

    def markers(self) -> Iterable[Path]:
        """Folders whose deletion has begun."""
        return self._folder.glob(HEX + _DELETED)

    def has_begun(self, checkpoint_id: str) -> bool:
        return (self._folder / f"{checkpoint_id}{_DELETED}").exists()

    def begin(self, row: CheckpointRow) -> None:
        """Delete a checkpoint, as far as that can be done now.

        Raises:
            OSError: the disk fails; nothing has changed.
            StorageError: the database, or the remote store, is away.
        """
        with self._lock:
            folder = self._folder / row.checkpoint_id
            with contextlib.suppress(FileNotFoundError):  # another server deletes it, too
                self._finish(folder.rename(folder.with_name(f"{row.checkpoint_id}{_DELETED}")))
                return
            if self._remote is None:
                self._store.delete_checkpoint(row.checkpoint_id)
                return
        self._remote.delete(row)

    def finish(self) -> None:
        """Go on with all that have begun."""
        with self._lock:
            for marker in self.markers():
                self._finish(marker)

    def _finish(self, marker: Path) -> None:
        """Do what can be done now; the marker stays until all is."""
        try:
            for path in marker.iterdir():
                path.unlink(missing_ok=True)
            self._store.delete_checkpoint(marker.stem)
            marker.rmdir()
        except (OSError, StorageError) as error:
            _log.warning("the deletion of checkpoint %s will be tried again: %s", marker.stem, error)
