"""Checkpoints on disk: a folder each, found through the store by its `tinker://` path and never by joining one. Where
they are kept remotely, see `remote`; those that lie on the disk all the same are read and deleted as here.

    <state>/checkpoints/<id>, written whole or not at all ──then──► row in the store ──► `Deletions`

A folder that a crash kept from being finished is deleted by a start. Any other without a row is not ours to
delete: a start puts it aside.
"""

import contextlib
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, replace
from pathlib import Path

from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.checksums import checksums, verify
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import sync
from cookhouse.server.refusals import (
    DiskError,
    ForeignError,
    LeaseLostError,
    NotFoundError,
    StorageBusyError,
    StorageError,
)
from cookhouse.server.storage.checkpoints.blob_files import id_in
from cookhouse.server.storage.checkpoints.checkpoint import (
    NewCheckpoint,
    StoredCheckpoint,
    check_name,
    copy_of,
    unwritten,
)
from cookhouse.server.storage.checkpoints.deletions import Deletions
from cookhouse.server.storage.checkpoints.encryption import encrypt_files
from cookhouse.server.storage.checkpoints.leftovers import (
    delete_unfinished,
    put_aside_unknown,
    tell_local,
    tell_lost,
    unfinished,
)
from cookhouse.server.storage.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.journal.folders import link_files
from cookhouse.server.storage.store.failures import is_cut
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Also, Store

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a state folder. Blocking; may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        read_only: ReadOnlyCheckpoints | None = None,
        *,
        is_shared: bool = False,
        remote: RemoteCheckpoints | None = None,
    ) -> None:
        """Folders that the store does not know are put aside, in a folder next to this one: at once, unless other
        servers write to the same folder. `remote`: where new checkpoints go; those that lie in the folder stay there.
        """
        self._remote = remote
        self._is_shared = is_shared
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._deletions = Deletions(folder, store, remote)
        private_folder(folder)
        if not is_shared:
            self.tidy()

    def tidy(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        """Finish or put aside what earlier servers left.

        `is_alone`: asked once it is known what there is: whether no other server may be writing it.
        """
        folder, there = self._folder, list(self._folder.iterdir())
        found_remote = self._remote.found() if self._remote is not None and is_alone() else None
        if not is_alone():
            return
        self._deletions.finish()
        delete_unfinished(there)
        kept = self._store.checkpoint_ids()
        markers = set(self._deletions.markers())
        found = {path.name: path for path in there if path.is_dir() and path not in markers}
        put_aside_unknown(folder, [path for name, path in found.items() if name not in kept])
        lost = kept - set(found)
        if self._remote is None:
            tell_lost(f"{folder}", lost)
        elif found_remote is not None:
            self._remote.tidy(found_remote)
            tell_lost(f"{folder}, nor files at {self._remote.url},", lost - set(map(id_in, found_remote.files)))
            sizes = [row.size_bytes for row in self._store.every_checkpoint() if row.checkpoint_id in found]
            tell_local(folder, sizes, self._remote.url)

    @property
    def readers(self) -> Executor | None:
        """Threads for what reads checkpoints, which may wait for a remote store; None: those that all share."""
        return None if self._remote is None else self._remote.readers

    def folder_of(self, row: CheckpointRow) -> Path:
        """Folder of its files; a copy of remote ones need not be there until `verify` or `file_of`."""
        folder = self.folder_with_id(row.checkpoint_id)
        is_local = self._remote is None or row.sha256 is None or folder.is_dir()
        return folder if is_local or self._remote is None else self._remote.folder_of(row)

    def file_of(self, checkpoint_id: str, name: str) -> Path | None:
        """One of the files of a checkpoint, to be read at once; None: there is none. Ids as in `folder_with_id`.

        Raises:
            ServiceError: as `verify`, of files that have to be fetched; what is there is not compared.
        """
        folder = self.folder_with_id(checkpoint_id)
        row = None if self._remote is None or folder.is_dir() else self.known(checkpoint_id)
        if self._remote is not None and row is not None:
            folder = self.folder_of(row)
            try:
                self._remote.bring(row)
            except DamagedError as error:
                raise self.explained(StoredCheckpoint(row=row, folder=folder), error) from error
        return file if (file := folder / name).exists() else None

    @contextlib.contextmanager
    def held(self, kept: StoredCheckpoint) -> Iterator[None]:
        """Keep the files of a checkpoint where they are while the block reads them, unless it is deleted."""
        with contextlib.nullcontext() if self._remote is None else self._remote.held(kept.folder):
            yield

    def folder_with_id(self, checkpoint_id: str) -> Path:
        """Folder of the checkpoint with this id, also of one that was deleted. Ids are made by this server; no client's
        text may be one.
        """
        return self._folder / checkpoint_id

    def resolve(self, path: str, owner: str) -> CheckpointRow:
        """The checkpoint at a `tinker://run/kind/name` path, to be read.

        Raises:
            NotFoundError: there is none, it has expired, or it belongs to another tenant, who has not published it.
        """
        parts = path.removeprefix("tinker://").split("/")
        row = foreign = None
        if path.startswith("tinker://") and len(parts) == 3:
            model_id, kind, name = parts
            row = self._store.checkpoint(model_id, kind, name, owner)
            foreign = row or self._store.checkpoint_named(model_id, kind, name)
        if row is None:
            raise (NotFoundError if foreign is None else ForeignError)(
                f"no checkpoint at {path!r}; list what there is with RestClient.list_user_checkpoints()"
            )
        return row

    def resolve_own(self, path: str, owner: str) -> CheckpointRow:
        """The checkpoint at a path, to be changed.

        Raises:
            NotFoundError: as `resolve`, and for one that another tenant has published.
        """
        row = self.resolve(path, owner)
        if row.owner != owner:
            raise ForeignError(f"{path} belongs to somebody else, who has published it; copy it to have your own")
        return row

    def find(self, path: str, owner: str) -> StoredCheckpoint:
        """The checkpoint at a path, to be read only: it may lie in the folder of another server.

        Raises:
            NotFoundError: as `resolve`.
        """
        try:
            row = self.resolve(path, owner)
        except NotFoundError:
            kept = None if self._read_only is None else self._read_only.find(path)
            if kept is None:
                raise
            return kept
        run = self._store.run(row.model_id, row.owner)
        return StoredCheckpoint(
            row=row, folder=self.folder_of(row), run_metadata={} if run is None else run.user_metadata
        )

    def find_loadable(self, path: str, owner: str) -> StoredCheckpoint:
        """The checkpoint at a path, to be loaded by the engine.

        Raises:
            NotFoundError: as `resolve`.
            InputError: it holds files for other libraries.
        """
        kept = self.find(path, owner)
        if kept.row.kind == "external_weights":
            raise InputError(
                f"{path} holds files for other libraries and cannot be loaded; load a checkpoint of save_state() or "
                "save_weights_for_sampler()"
            )
        return kept

    def verify(self, kept: StoredCheckpoint) -> None:
        """Read all its files, and compare them with what was written. Errors name the checkpoint, never the folder.

        Raises:
            InputError: it has been deleted, or cannot be loaded for what is in it.
            ServiceError: its files are damaged, or gone.
            StorageBusyError: they cannot be fetched now.
        """
        try:
            if self._remote is not None and kept.folder == self._remote.folder_of(kept.row):
                self._remote.verify(kept.row)
                return
            if not kept.folder.is_dir():
                raise DamagedError(f"{kept.folder} is gone, or lies where another server has its --checkpoints")
            verify(kept.folder, kept.row.sha256)
        except (InputError, OSError) as error:
            raise self.explained(kept, error) from error

    def explained(self, kept: StoredCheckpoint, error: Exception) -> Exception:
        """Exception for an error that reading a checkpoint's files gave, as of `verify`."""
        row, folder = kept.row, kept.folder
        if isinstance(error, DamagedError | OSError | DiskError):
            is_own = folder == self.folder_of(row)
            if is_own and self._deletions.has_begun(row.checkpoint_id):  # by another server
                return InputError(f"{row.path} has been deleted")
            if is_own and row.checkpoint_id not in self._store.checkpoint_ids():
                return InputError(f"{row.path} has been deleted")
            if not is_own and not folder.is_dir():
                return InputError(f"{row.path} has been deleted, or its files lie where its server has --checkpoints")
            _log.error("%s is damaged: %s", row.path, error)
            return ServiceError(
                f"{row.path} is damaged on the service's side; load another checkpoint, and tell the service's "
                "operator, whose log has the details"
            )
        if isinstance(error, InputError):
            return InputError(str(error).replace(str(folder), row.path))
        return error

    def check(self, new: NewCheckpoint) -> str:
        """The name to save under.

        Raises:
            InputError: the name or the time to live cannot be used, or the name is taken.
        """
        name = check_name(new)
        taken = self._store.checkpoint(new.model_id, new.kind, name, new.owner)
        if taken is not None and not new.overwrite:
            raise InputError(f"{taken.path} exists; save under another name, delete it, or pass overwrite")
        return name

    def new_folder(self) -> Path:
        """Folder to which a new checkpoint is to be written; `commit` makes it one, `abandon` deletes it."""
        return unfinished(self._folder) if self._remote is None else self._remote.new_folder()

    def known(self, checkpoint_id: str) -> CheckpointRow | None:
        """The checkpoint with an id that the server drew for it, if it has been saved."""
        return self._store.checkpoint_with_id(checkpoint_id)

    def abandon(self, folder: Path) -> None:
        """Delete what was written for a checkpoint that will not be."""
        shutil.rmtree(folder, ignore_errors=True)

    def write(self, new: NewCheckpoint, write: Callable[[Path], None], also: Also | None = None) -> CheckpointRow:
        """Let `write` fill a new folder, then `commit` it. Raises as that does."""
        name, folder = self.check(new), self.new_folder()
        try:
            write(folder)
        except BaseException as error:
            self.abandon(folder)
            if isinstance(error, OSError):
                path = f"tinker://{new.model_id}/{new.kind}/{name}"
                raise unwritten(path, error.strerror or str(error)) from error
            raise
        return self.commit(new, folder, also=also)

    def commit(
        self, new: NewCheckpoint, folder: Path, checkpoint_id: str | None = None, also: Also | None = None
    ) -> CheckpointRow:
        """Make a folder of `new_folder`, which has been written whole, a checkpoint, with this id or a new one; or
        delete it, unless it may be one all the same. Its files are encrypted first, where that was asked for. For
        `also` see `Store.put_checkpoint`.

        Raises:
            InputError: as `check`.
            StorageError: the disk is full, or failed otherwise; or a remote store did.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.abandon, folder)
            now = time.time()
            row = CheckpointRow(
                checkpoint_id=checkpoint_id or uuid.uuid4().hex,
                model_id=new.model_id,
                kind=new.kind,
                name=self.check(new),
                owner=new.owner,
                base_model=new.base_model,
                lora=asdict(new.lora),
                has_optimizer=new.has_optimizer,
                size_bytes=0,
                created_at=now,
                expires_at=None if new.ttl_seconds is None else self._store.clock.end_of(new.ttl_seconds),
                user_metadata=dict(new.user_metadata),
            )
            try:
                if new.recipients:
                    encrypt_files(folder, new.recipients)
                size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                row = replace(row, size_bytes=size_bytes, sha256=checksums(folder))
                if self._remote is None:
                    undo.callback(self.abandon, self._place(folder, row))
                else:
                    self._upload(self._remote, folder, row, undo)
            except OSError as error:
                raise unwritten(row.path, error.strerror or str(error)) from error
            try:
                replaced = self._store.put_checkpoint(row, overwrite=new.overwrite, also=also)
            except StorageError as error:
                if self._may_be_kept(row, error):
                    undo.pop_all()
                    if self._remote is not None:  # its files are there, and a start knows
                        self.abandon(folder)
                raise
            undo.pop_all()
        if self._remote is not None:
            self._remote.keep(row, folder)
        if replaced is not None:
            with contextlib.suppress(OSError, StorageError):  # put aside at the next start, or marked as going
                self._deletions.begin(replaced)
        return row

    def _upload(self, remote: RemoteCheckpoints, folder: Path, row: CheckpointRow, undo: contextlib.ExitStack) -> None:
        before = self._store.checkpoint_named(row.model_id, row.kind, row.name)
        if before is not None and self.folder_with_id(before.checkpoint_id).is_dir():
            before = None
        undo.callback(remote.withdraw, row, before)
        remote.upload(row, folder, before)

    def _may_be_kept(self, row: CheckpointRow, error: StorageError) -> bool:
        """True if a folder may be a checkpoint although its row could not be written: by the commit whose answer was
        lost, or by another server that has taken the session over. It stays, and is put aside if it is none.
        """
        if is_cut(error) or isinstance(error, LeaseLostError):
            return True
        if not self._is_shared:
            return False
        try:
            self._store.check_fence()
            return self.known(row.checkpoint_id) is not None
        except StorageError:
            return True

    def _place(self, folder: Path, row: CheckpointRow) -> Path:
        """Give a folder its name as a checkpoint; one that a server which died then has left there goes."""
        target = self.folder_of(row)
        if not self._is_shared:
            self.abandon(target)
        elif target.exists():  # never in place: whoever holds the session now may have made it a checkpoint
            self._store.check_fence()
            target.rename(self.new_folder())
        folder.rename(target)
        sync(self._folder)
        return target

    def copy(
        self, row: CheckpointRow, *, model_id: str, owner: str, ttl_seconds: int | None, also: Also | None = None
    ) -> CheckpointRow:
        """A checkpoint of a run of its own with the same files, which it shares on disk where the file system can. For
        `also` see `Store.put_checkpoint`.

        Raises:
            InputError: the time to live cannot be used, or the source has been deleted.
            StorageError: the disk is full, or failed otherwise.
        """
        new = copy_of(row, model_id=model_id, owner=owner, ttl_seconds=ttl_seconds)
        try:
            source = StoredCheckpoint(row=row, folder=self.folder_of(row))
            with self.held(source):
                self.verify(source)
                return self.write(new, lambda folder: link_files(source.folder, folder), also)
        except StorageError:
            raise
        except ServiceError as error:
            raise StorageError(str(error)) from error  # damage does not go away by asking again

    def delete(self, row: CheckpointRow) -> None:
        """Delete a checkpoint, on a full disk too. Once its folder has another name it is gone, also after a crash.

        Raises:
            StorageError: the disk fails; nothing has changed.
        """
        try:
            self._deletions.begin(row)
        except OSError as error:
            raise StorageError(f"{row.path} could not be deleted: {error.strerror or error}") from error

    def sweep(self, read: Collection[str] = ()) -> None:
        """Delete what has expired, and finish deletions that a full disk or a remote store held up. `read`: URLs of
        folders that workers may read, of which copies stay.
        """
        try:
            for row in self._store.expired_checkpoints():
                self.delete(row)
        except StorageBusyError as error:
            _log.warning("checkpoints that have expired wait to be deleted: %s", error)
        self._deletions.finish()
        if self._remote is not None:
            self._remote.sweep(read)
