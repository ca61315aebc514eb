"""Weights in other folders, to be loaded and never changed: checkpoints in the state folders of other servers of the
same user, and adapters in PEFT folders.

So stages chain without a shared server: a run's own server loads what the server of an earlier run wrote.
"""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cookhouse.assets import ADAPTER_FOLDERS
from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.checksums import checksums, verify
from cookhouse.engine.files.manifest import read_spec
from cookhouse.engine.peft_import import import_apart
from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.state_dir import DATABASE, is_state_dir
from cookhouse.weights.peft_folders import is_peft_path, peft_path

_log = logging.getLogger(__name__)


class ReadOnlyCheckpoints:
    """Checkpoints in those folders, also those that are written there later. Whoever has a key of this server may load
    it.
    """

    def __init__(
        self, state_dirs: Sequence[Path] = (), peft_folders: Sequence[Path] = (), *, imported: Path | None = None
    ) -> None:
        """Look into the folders. PEFT folders are written as checkpoints below `imported`, where they are kept.

        Raises:
            InputError: one is no state folder, or belongs to another user of the machine; or is no PEFT folder that the
                engine computes.
        """
        self._by_path: dict[str, StoredCheckpoint] = {}
        self._seen: dict[Path, object] = {}
        for state_dir in state_dirs:
            _check_owner(state_dir)
            self._read(state_dir)
        self._imported = imported
        self._importing = threading.Lock()
        for folder in peft_folders:
            self._import(folder)

    def find(self, path: str) -> StoredCheckpoint | None:
        """The checkpoint at a `tinker://` path; an embedded adapter is there for whoever asks."""
        if path not in self._by_path and is_peft_path(path) and self._imported is not None:
            for folder in ADAPTER_FOLDERS.values():
                if peft_path(folder) == path:
                    self._import(folder)
        if path not in self._by_path:
            for state_dir, seen in self._seen.items():
                if is_state_dir(state_dir) and seen != _version(state_dir):
                    self._read(state_dir)
        return self._by_path.get(path)

    def _read(self, state_dir: Path) -> None:
        self._seen[state_dir] = _version(state_dir)  # before: what is written meanwhile is another version
        self._by_path |= {kept.row.path: kept for kept in stored_checkpoints(state_dir)}

    def _import(self, folder: Path) -> None:
        assert self._imported is not None
        with self._importing:
            kept = _imported(folder, self._imported)
        self._by_path[kept.row.path] = kept


def _version(state_dir: Path) -> object:
    """Changes with what the database of a state folder holds."""
    files = [state_dir / DATABASE, state_dir / f"{DATABASE}-wal"]
    return [(found.st_ino, found.st_size, found.st_mtime_ns) for file in files if (found := _stat(file)) is not None]


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _imported(folder: Path, into: Path) -> StoredCheckpoint:
    """The adapter of a PEFT folder as a checkpoint, written unless an earlier start of this server has, whole."""
    model_id, _, name = peft_path(folder).removeprefix("tinker://").split("/")
    files = into / model_id.split(":")[0]
    sums = files.with_name(f"{files.name}.sha256.json")
    if files.is_dir() and not _is_whole(files, sums):
        _log.warning("%s is damaged, and is imported again from %s", files, folder)
        shutil.rmtree(files)
    if not files.is_dir():
        private_folder(into)
        import_apart(folder, files)
        write_whole(sums, json.dumps(checksums(files)))
    base_model, lora = read_spec(files)
    row = CheckpointRow(
        checkpoint_id=files.name,
        model_id=model_id,
        kind="weights",
        name=name,
        owner="",
        base_model=base_model,
        lora=asdict(lora),
        has_optimizer=False,
        size_bytes=sum(file.stat().st_size for file in files.rglob("*")),
        created_at=time.time(),
        expires_at=None,
        sha256=checksums(files),
    )
    return StoredCheckpoint(row=row, folder=files)


def _is_whole(files: Path, sums: Path) -> bool:
    """True if an import is as it was written; one of a version that kept no sums is taken to be."""
    try:
        if sums.exists():
            verify(files, {str(name): str(digest) for name, digest in json.loads(sums.read_bytes()).items()})
        else:
            write_whole(sums, json.dumps(checksums(files)))
    except (DamagedError, ValueError, AttributeError):
        return False
    return True


def _check_owner(state_dir: Path) -> None:
    if not state_dir.is_dir():
        raise InputError(f"{state_dir} is not the state folder of a server: there is no such folder")
    if state_dir.stat().st_uid != os.geteuid():
        raise InputError(f"{state_dir} belongs to another user of this machine; name a folder of your own")
