"""Checkpoints on disk: a folder each, found through the store by its `tinker://` path and never by joining one.

    <state>/checkpoints/<id>, written whole or not at all ──then──► row in the store

A folder without a row, left by a crash in between, is removed at the next start.
"""

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.store import CheckpointKind, CheckpointRow, Store

_NAME = re.compile(r"[A-Za-z0-9._=+-]{1,200}")
_MIN_TTL_SECONDS, _MAX_TTL_SECONDS = 3600, 10 * 366 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCheckpoint:
    """A checkpoint to be written, checked by `check`."""

    model_id: str
    kind: CheckpointKind
    name: str | None
    owner: str
    base_model: str
    lora: LoraSpec
    has_optimizer: bool
    ttl_seconds: int | None
    overwrite: bool
    user_metadata: Mapping[str, str]


def check_ttl(ttl_seconds: int | None) -> None:
    """Refuse a time to live outside an hour to ten years; None is for ever."""
    if ttl_seconds is not None and not _MIN_TTL_SECONDS <= ttl_seconds <= _MAX_TTL_SECONDS:
        raise InputError(f"ttl_seconds is {ttl_seconds}; allowed are 3600 (an hour) to ten years, or none for ever")


class Checkpoints:
    """The checkpoints of a state folder. Blocking; may be called from any thread."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self._store = store
        folder.mkdir(parents=True, exist_ok=True)
        kept = store.checkpoint_ids()
        for path in folder.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path)

    def folder_of(self, row: CheckpointRow) -> Path:
        return self.folder_with_id(row.checkpoint_id)

    def folder_with_id(self, checkpoint_id: str) -> Path:
        """Where a checkpoint of this id lies, or lay. Ids are made by this server; no client's text may be one."""
        return self._folder / checkpoint_id

    def resolve(self, path: str, owner: str) -> CheckpointRow:
        """The checkpoint at a `tinker://run/kind/name` path.

        Raises:
            NotFoundError: there is none, it has expired, or it belongs to another tenant.
        """
        parts = path.removeprefix("tinker://").split("/")
        row = None
        if path.startswith("tinker://") and len(parts) == 3:
            model_id, kind, name = parts
            row = self._store.checkpoint(model_id, kind, name, owner, now=time.time())
        if row is None:
            raise NotFoundError(
                f"no checkpoint at {path!r}; list what there is with RestClient.list_user_checkpoints()"
            )
        return row

    def resolve_loadable(self, path: str, owner: str) -> CheckpointRow:
        """The checkpoint at a path, to be loaded by the engine.

        Raises:
            NotFoundError: as `resolve`.
            InputError: it holds files for other libraries.
        """
        row = self.resolve(path, owner)
        if row.kind == "external_weights":
            raise InputError(
                f"{path} holds files for other libraries and cannot be loaded; load a checkpoint of save_state() or "
                "save_weights_for_sampler()"
            )
        return row

    def check(self, new: NewCheckpoint) -> str:
        """The name to save under.

        Raises:
            InputError: the name or the time to live cannot be used, or the name is taken.
        """
        if new.name is None or not _NAME.fullmatch(new.name) or new.name in (".", ".."):
            raise InputError(
                f"{new.name!r} cannot name a checkpoint; a name has 1 to 200 letters, digits and any of . _ - = +"
            )
        check_ttl(new.ttl_seconds)
        taken = self._store.checkpoint(new.model_id, new.kind, new.name, new.owner, now=time.time())
        if taken is not None and not new.overwrite:
            raise InputError(f"{taken.path} exists; save under another name, delete it, or pass overwrite")
        return new.name

    def write(self, new: NewCheckpoint, write: Callable[[Path], None]) -> CheckpointRow:
        """Let `write` fill a new folder, then make the checkpoint visible, all or nothing.

        Raises:
            InputError: as `check`.
            ServiceError: the disk is full, or failed otherwise.
        """
        name = self.check(new)
        now = time.time()
        row = CheckpointRow(
            checkpoint_id=uuid.uuid4().hex,
            model_id=new.model_id,
            kind=new.kind,
            name=name,
            owner=new.owner,
            base_model=new.base_model,
            lora=asdict(new.lora),
            has_optimizer=new.has_optimizer,
            size_bytes=0,
            created_at=now,
            expires_at=None if new.ttl_seconds is None else now + new.ttl_seconds,
            user_metadata=dict(new.user_metadata),
        )
        folder = self.folder_of(row)
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                write(folder)
                size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            except OSError as error:
                raise ServiceError(f"{row.path} could not be written: {error.strerror or error}") from error
            row = replace(row, size_bytes=size_bytes)
            replaced = self._store.put_checkpoint(row, overwrite=new.overwrite)
            undo.pop_all()
        if replaced is not None:
            shutil.rmtree(self._folder / replaced, ignore_errors=True)
        return row

    def delete(self, row: CheckpointRow) -> None:
        """The row goes first: a checkpoint that can be found is whole."""
        self._store.delete_checkpoint(row.checkpoint_id)
        shutil.rmtree(self.folder_of(row), ignore_errors=True)

    def delete_expired(self) -> None:
        for row in self._store.expired_checkpoints(now=time.time()):
            self.delete(row)
