"""Files of a checkpoint while the engine reads them: verified before, and kept where a replay reads them again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from cookhouse.engine.contract import Url
from cookhouse.errors import CookhouseError
from cookhouse.server.refusals import LostError, StorageError
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.journal import Journal

_log = logging.getLogger(__name__)


class CheckpointFiles:
    def __init__(self, checkpoints: Checkpoints, journal: Journal | None) -> None:
        self._checkpoints = checkpoints
        self._journal = journal

    @asynccontextmanager
    async def opened(self, kept: StoredCheckpoint) -> AsyncIterator[Url]:
        """The URL of a checkpoint's files, whose checksums are right. Reads them in a thread.

        Raises:
            InputError: it has been deleted, or cannot be loaded for what is in it.
            ServiceError: its files are damaged, or gone; or cannot be fetched now.
        """
        readers, verify = self._checkpoints.readers, self._checkpoints.verify
        with self._checkpoints.held(kept):
            await asyncio.get_running_loop().run_in_executor(readers, verify, kept)
            try:
                yield kept.folder.absolute().as_uri()
            except CookhouseError as error:
                raise await asyncio.to_thread(self._checkpoints.explained, kept, error) from error

    @asynccontextmanager
    async def own(self, kept: StoredCheckpoint, load_id: str) -> AsyncIterator[StoredCheckpoint]:
        """The files of a checkpoint as a replay will find them, though it may be deleted meanwhile.

        Raises:
            StorageError: the disk has no room for them.
        """
        if self._journal is None:
            yield kept
            return
        folder = self._journal.folders.load(load_id)
        loop = asyncio.get_running_loop()
        is_new = await loop.run_in_executor(self._checkpoints.readers, self._link, kept, folder)
        try:
            yield replace(kept, folder=folder)
        except LostError:  # it runs again
            raise
        except CookhouseError:
            if is_new:
                await asyncio.to_thread(self._journal.folders.delete, folder)
            raise

    def _link(self, kept: StoredCheckpoint, folder: Path) -> bool:
        """True if they were not there, or not as they were saved; blocking."""
        assert self._journal is not None
        if folder.exists():
            own = replace(kept, folder=folder)
            try:
                self._checkpoints.verify(own)
                return False
            except CookhouseError as damage:
                try:
                    self._checkpoints.verify(kept)
                except CookhouseError:
                    raise damage from None
            _log.warning("%s is loaded again from the checkpoint itself, which is whole", kept.row.path)
            self._journal.folders.delete(folder)
        else:
            self._checkpoints.verify(kept)
        try:
            self._journal.folders.link(kept.folder, folder)
        except OSError as error:
            raise StorageError(
                f"{kept.row.path} could not be loaded: {error.strerror or error}; free space on the service's disk, "
                "for example by deleting checkpoints, and load it again"
            ) from error
        return True
