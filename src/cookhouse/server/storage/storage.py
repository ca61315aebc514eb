"""Storage of a server, open: its store, its checkpoints, and its journal."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.archives import Archives
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.copying import Copying
from cookhouse.server.storage.checkpoints.external_weights import ExternalWeights
from cookhouse.server.storage.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.checkpoints.uploads import Uploads
from cookhouse.server.storage.journal import OFF, Journal
from cookhouse.server.storage.store.identity import check_state_folder
from cookhouse.server.storage.store.private import SALT_FILE, read_or_draw
from cookhouse.server.storage.store.store import Store, open_own


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """By several servers."""

    folder: Path
    """Of checkpoints and journal."""
    secret: bytes
    server_id: str
    """Of this one."""


class Storage:
    """Opened in any thread; closed by `close`."""

    def __init__(
        self,
        state_dir: Path,
        settings: Settings,
        *,
        store: Store | None = None,
        shared: Shared | None = None,
        read_state_dirs: Sequence[Path] = (),
        peft_folders: Sequence[Path] = (),
    ) -> None:
        """`store` None: the one in the state folder.

        Raises:
            InputError: one of the folders or URLs cannot be used.
            ServiceError: the blob store of checkpoints fails.
        """
        self.store = store or open_own(state_dir / "server.db")
        if shared is None:
            try:
                check_state_folder(state_dir, self.store.database)
            except BaseException:
                if store is None:
                    self.store.close()
                raise
        self.folder = state_dir if shared is None else shared.folder
        self.secret = None if shared is None else shared.secret
        """Of all servers that share it."""
        self.salt = self.secret or read_or_draw(state_dir / SALT_FILE)
        """Of the names of tenants in metrics."""
        read_only = ReadOnlyCheckpoints(read_state_dirs, peft_folders, imported=self.folder / "peft")
        self._remote = None
        if settings.checkpoints is not None:
            self._remote = RemoteCheckpoints(settings.checkpoints, state_dir / "checkpoints-cache", self.store)
        self.checkpoints = Checkpoints(
            self.folder / "checkpoints", self.store, read_only, is_shared=shared is not None, remote=self._remote
        )
        self.external_weights = ExternalWeights(self.checkpoints, self.secret)
        self.archives = Archives(self.checkpoints, state_dir / "archives", self.secret)
        self.uploads = Uploads(self.checkpoints, self.store, state_dir / "uploads")
        self.copying = Copying(self.checkpoints, self.store, server_id=None if shared is None else shared.server_id)
        self.writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        """Writes checkpoints in order."""
        self.journal = None if settings.journal == OFF else Journal(self.folder, self.store, settings)

    def stop(self) -> None:
        """End the threads."""
        self.copying.close()
        self.writer.shutdown(wait=False, cancel_futures=True)
        if self._remote is not None:
            self._remote.close()
