"""Checkpoints on disk: a folder each, found through the store by its `tinker://` path and never by joining one.

    save      <state>/checkpoints/<id>, written whole or not at all ──then──► row in the store
    delete    <id> renamed to <id>.deleted ──then──► emptied ──then──► row deleted, and the empty folder

A deletion needs no room on the disk: what cannot be written on a full one is done by the next sweep, or at the next
start. A folder that a crash kept from being finished is deleted by a start. Any other without a row is not ours to
delete: a start puts it aside.
"""

import contextlib
import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cookhouse.engine.contract import DamagedError
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import sync
from cookhouse.server.checkpoints.checkpoint import NewCheckpoint, StoredCheckpoint
from cookhouse.server.checkpoints.checksums import checksums, verify
from cookhouse.server.checkpoints.encryption import encrypt_files
from cookhouse.server.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.server.journal.folders import link_files
from cookhouse.server.refusals import DiskError, LeaseLostError, NotFoundError, StorageError
from cookhouse.server.store.failures import is_cut
from cookhouse.server.store.private import private_folder
from cookhouse.server.store.rows import CheckpointRow
from cookhouse.server.store.store import Store

_log = logging.getLogger(__name__)
_DELETED = ".deleted"
_ASIDE = "checkpoints-put-aside"
_HEX = "[0-9a-f]" * 32
_UNFINISHED = f".{_HEX}"
"""What `new_folder` calls a checkpoint that is none yet."""
_UNWRITTEN = f".{_UNFINISHED}.{_HEX}", f".{_HEX}.{_HEX}"
"""What `new_folder` of the engine calls one of these that it has not finished, and any other."""
_MARKERS = _HEX + _DELETED
_NAME = re.compile(r"[A-Za-z0-9._=+-]{1,200}")
_MIN_TTL_SECONDS, _MAX_TTL_SECONDS = 3600, 10 * 366 * 86400


def check_ttl(ttl_seconds: int | None) -> None:
    """Refuse a time to live outside an hour to ten years; None is for ever."""
    if ttl_seconds is not None and not _MIN_TTL_SECONDS <= ttl_seconds <= _MAX_TTL_SECONDS:
        raise InputError(f"ttl_seconds is {ttl_seconds}; allowed are 3600 (an hour) to ten years, or none for ever")


def check_name(new: NewCheckpoint) -> str:
    """The name to save under; refuses one that cannot be used, and a time to live as `check_ttl`."""
    if new.name is None or not _NAME.fullmatch(new.name) or new.name in (".", ".."):
        raise InputError(
            f"{new.name!r} cannot name a checkpoint; a name has 1 to 200 letters, digits and any of . _ - = +"
        )
    check_ttl(new.ttl_seconds)
    return new.name


class Checkpoints:
    """The checkpoints of a state folder. Blocking; may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        read_only: ReadOnlyCheckpoints | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        """Folders that the store does not know are put aside, in a folder beside this one: at once, unless other
        servers write to the same folder.
        """
        self._is_shared = is_shared
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._deletions = threading.Lock()
        private_folder(folder)
        if not is_shared:
            self.tidy()

    def tidy(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        """Finish or put aside what earlier servers left.

        `is_alone`: asked once it is known what there is: whether no other server may be writing it.
        """
        folder, there = self._folder, list(self._folder.iterdir())
        if not is_alone():
            return
        self._finish_deletions()
        self._delete_unfinished(there)
        kept = self._store.checkpoint_ids()
        markers = set(folder.glob(_MARKERS))
        found = {path.name: path for path in there if path.is_dir() and path not in markers}
        self._put_aside([path for name, path in found.items() if name not in kept])
        if lost := sorted(kept - set(found)):
            _log.warning(
                "%d checkpoints have no folder in %s and cannot be loaded until it is back: %s",
                len(lost),
                folder,
                ", ".join(lost),
            )

    def folder_of(self, row: CheckpointRow) -> Path:
        return self.folder_with_id(row.checkpoint_id)

    def folder_with_id(self, checkpoint_id: str) -> Path:
        """Where a checkpoint of this id lies, or lay. Ids are made by this server; no client's text may be one."""
        return self._folder / checkpoint_id

    def resolve(self, path: str, owner: str) -> CheckpointRow:
        """The checkpoint at a `tinker://run/kind/name` path, to be read.

        Raises:
            NotFoundError: there is none, it has expired, or it belongs to another tenant, who has not published it.
        """
        parts = path.removeprefix("tinker://").split("/")
        row = None
        if path.startswith("tinker://") and len(parts) == 3:
            model_id, kind, name = parts
            row = self._store.checkpoint(model_id, kind, name, owner)
        if row is None:
            raise NotFoundError(
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
            raise NotFoundError(f"{path} belongs to somebody else, who has published it; copy it to have your own")
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
        """
        try:
            if not kept.folder.is_dir():
                raise DamagedError(f"{kept.folder} is gone")
            verify(kept.folder, kept.row.sha256)
        except (InputError, OSError) as error:
            raise self.explained(kept, error) from error

    def explained(self, kept: StoredCheckpoint, error: Exception) -> Exception:
        """What to say of an error that reading a checkpoint's files gave, as `verify` does."""
        row, folder = kept.row, kept.folder
        if isinstance(error, DamagedError | OSError | DiskError):
            is_own = folder == self.folder_of(row)
            if is_own and folder.with_name(f"{row.checkpoint_id}{_DELETED}").exists():  # by another server
                return InputError(f"{row.path} has been deleted")
            if row.checkpoint_id not in self._store.checkpoint_ids() if is_own else not folder.is_dir():
                return InputError(f"{row.path} has been deleted")
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
        """Where a new checkpoint is to be written; `commit` makes it one, `abandon` deletes it."""
        return self._folder / f".{uuid.uuid4().hex}"

    def known(self, checkpoint_id: str) -> CheckpointRow | None:
        """The checkpoint with an id that the server drew for it, if it has been saved."""
        return self._store.checkpoint_with_id(checkpoint_id)

    def abandon(self, folder: Path) -> None:
        """Delete what was written for a checkpoint that will not be."""
        shutil.rmtree(folder, ignore_errors=True)

    def write(self, new: NewCheckpoint, write: Callable[[Path], None]) -> CheckpointRow:
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
        return self.commit(new, folder)

    def commit(self, new: NewCheckpoint, folder: Path, checkpoint_id: str | None = None) -> CheckpointRow:
        """Make a folder of `new_folder`, which has been written whole, a checkpoint, with this id or a new one; or
        delete it, unless it may be one all the same. Its files are encrypted first, where that was asked for.

        Raises:
            InputError: as `check`.
            StorageError: the disk is full, or failed otherwise.
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
                undo.callback(self.abandon, self._place(folder, row))
            except OSError as error:
                raise unwritten(row.path, error.strerror or str(error)) from error
            try:
                replaced = self._store.put_checkpoint(row, overwrite=new.overwrite)
            except StorageError as error:
                if self._may_be_kept(row, error):
                    undo.pop_all()
                raise
            undo.pop_all()
        if replaced is not None:
            with contextlib.suppress(OSError):  # put aside at the next start
                self._discard(replaced)
        return row

    def _may_be_kept(self, row: CheckpointRow, error: StorageError) -> bool:
        """Whether a folder may be a checkpoint although its row could not be written: by the commit whose answer was
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

    def copy(self, row: CheckpointRow, *, model_id: str, owner: str, ttl_seconds: int | None) -> CheckpointRow:
        """A checkpoint of a run of its own with the same files, which it shares on disk where the file system can.

        Raises:
            InputError: the time to live cannot be used, or the source has been deleted.
            StorageError: the disk is full, or failed otherwise.
        """
        new = NewCheckpoint(
            model_id=model_id,
            kind=row.kind,
            name=row.name,
            owner=owner,
            base_model=row.base_model,
            lora=row.lora_spec,
            has_optimizer=row.has_optimizer,
            ttl_seconds=ttl_seconds,
            overwrite=False,
            user_metadata=row.user_metadata,
        )
        try:
            source = StoredCheckpoint(row=row, folder=self.folder_of(row))
            self.verify(source)
            return self.write(new, lambda folder: link_files(source.folder, folder))
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
            self._discard(row.checkpoint_id)
        except OSError as error:
            raise StorageError(f"{row.path} could not be deleted: {error.strerror or error}") from error

    def sweep(self) -> None:
        """Delete what has expired, and finish deletions that a full disk held up."""
        for row in self._store.expired_checkpoints():
            self.delete(row)
        self._finish_deletions()

    def _discard(self, checkpoint_id: str) -> None:
        with self._deletions:
            folder = self.folder_with_id(checkpoint_id)
            with contextlib.suppress(FileNotFoundError):  # another server deletes it, too
                self._finish_deletion(folder.rename(folder.with_name(f"{checkpoint_id}{_DELETED}")))
                return
            self._store.delete_checkpoint(checkpoint_id)

    def _finish_deletions(self) -> None:
        with self._deletions:
            for marker in self._folder.glob(_MARKERS):
                self._finish_deletion(marker)

    def _finish_deletion(self, marker: Path) -> None:
        """Do what can be done now; the marker stays until all is."""
        try:
            for path in marker.iterdir():
                path.unlink(missing_ok=True)
            self._store.delete_checkpoint(marker.stem)
            marker.rmdir()
        except (OSError, StorageError) as error:
            _log.warning("the deletion of checkpoint %s will be tried again: %s", marker.stem, error)

    def _delete_unfinished(self, there: Sequence[Path]) -> None:
        """Delete what a server that died while it saved has left."""
        for path in [path for path in there if any(map(path.match, (_UNFINISHED, *_UNWRITTEN)))]:
            try:
                shutil.rmtree(path)
            except OSError as error:
                _log.warning("%s, a checkpoint that was never finished, cannot be deleted: %s", path, error)

    def _put_aside(self, strays: Sequence[Path]) -> None:
        """Move folders without a row out of the way, and say how to get them back."""
        if not strays:
            return
        aside = self._folder.parent / _ASIDE
        try:
            private_folder(aside)
            for path in strays:
                path.rename(aside / (f"{path.name}.{uuid.uuid4().hex}" if (aside / path.name).exists() else path.name))
        except OSError as error:
            _log.warning("%s has folders that are not in the database, which stay there: %s", self._folder, error)
            return
        _log.warning(
            "%d folders in %s are not in the database (which was lost or replaced, or the server died while it saved) "
            "and were put aside in %s. To have them back, stop the server, put the database that knows them in place "
            "of server.db and move them into %s again; or, without that database, make each a checkpoint with "
            "`cookhouse checkpoints import FOLDER --state-dir %s`",
            len(strays),
            self._folder,
            aside,
            self._folder,
            self._folder.parent,
        )


def unwritten(path: str, reason: str) -> StorageError:
    """What to say of a checkpoint that the disk has no room for, or that failed otherwise."""
    return StorageError(
        f"{path} could not be written: {reason}; free space on the service's disk, for example by deleting "
        "checkpoints, and save again"
    )
