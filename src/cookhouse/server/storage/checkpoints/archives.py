"""Archives of checkpoints, which SDKs before 0.36 download: an adapter in PEFT's layout, as tar.gz.

An archive is made when it is asked for, and kept for as long as a link lasts.
"""

import shutil
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.peft_export import export_apart
from cookhouse.errors import InputError, ServiceError
from cookhouse.models.names import plain_name
from cookhouse.server.access.signing import LINK_SECONDS, Signer
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.private import private_folder

_WAY_OUT = "ask for a new one with RestClient.get_checkpoint_archive_url()"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLink:
    route: str
    expires_at: int
    """Seconds since the epoch."""


class Archives:
    """Blocking; may be called from any thread. One archive is made at a time."""

    def __init__(self, checkpoints: Checkpoints, folder: Path, secret: bytes | None = None) -> None:
        """What an earlier process left in the folder is deleted. For `secret` see `Signer`."""
        shutil.rmtree(folder, ignore_errors=True)
        self._checkpoints = checkpoints
        self._folder = folder
        self._making = threading.Lock()
        self._signer = Signer(_WAY_OUT, secret)

    def link(self, path: str, owner: str) -> ArchiveLink:
        """A link to the archive of the checkpoint at a `tinker://` path.

        Raises:
            NotFoundError: there is none, or it is not the tenant's to read.
            InputError: it holds no adapter.
            ServiceError: its files are damaged, or the disk is full.
        """
        kept = self._checkpoints.find(path, owner)
        self._archive(kept)
        expires_at = int(time.time()) + LINK_SECONDS
        signature = self._signer.sign(expires_at, kept.row.checkpoint_id)
        route = f"checkpoint_archives/{kept.row.checkpoint_id}/{expires_at}/{signature}"
        return ArchiveLink(route=route, expires_at=expires_at)

    def follow(self, checkpoint_id: str, expires_at: int, signature: str) -> Path:
        """The archive that a link leads to; made again where another server has made it.

        Raises:
            NotFoundError: no such link was made, or the checkpoint has been deleted.
            GoneError: the link has ended.
            InputError, ServiceError: as `link`.
        """
        self._signer.check(signature, expires_at, checkpoint_id)
        row = self._checkpoints.known(checkpoint_id)
        if row is None:
            raise NotFoundError("the checkpoint has been deleted")
        return self._archive(StoredCheckpoint(row=row, folder=self._checkpoints.folder_of(row)))

    def _archive(self, kept: StoredCheckpoint) -> Path:
        file = self._folder / f"{kept.row.checkpoint_id}.tar.gz"
        with self._making:
            self._drop_old()
            if not file.exists():
                self._make(kept, file)
            file.touch()
        return file

    def _make(self, kept: StoredCheckpoint, file: Path) -> None:
        private_folder(self._folder)
        self._checkpoints.verify(kept)
        try:
            with tempfile.TemporaryDirectory(dir=self._folder) as temporary, self._checkpoints.held(kept):
                adapter, part = kept.folder, Path(temporary) / "archive"
                if kept.row.kind != "external_weights":
                    adapter = Path(temporary) / "adapter"
                    export_apart(kept.folder, adapter, plain_name(kept.row.base_model))
                with tarfile.open(part, "w:gz", compresslevel=1) as archive:
                    for one in sorted(adapter.iterdir()):
                        archive.add(one, one.name)
                part.replace(file)
        except InputError as error:  # without a path of the server's
            raise InputError(str(error).replace(str(kept.folder), kept.row.path)) from None
        except OSError as error:
            raise ServiceError(f"the archive of {kept.row.path} could not be written: {error.strerror}") from error

    def _drop_old(self) -> None:
        if self._folder.is_dir():
            for file in self._folder.glob("*.tar.gz"):
                if file.stat().st_mtime < time.time() - LINK_SECONDS:
                    file.unlink()
