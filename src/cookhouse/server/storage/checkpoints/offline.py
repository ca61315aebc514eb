"""The checkpoints of a state folder, for whoever owns the folder: no server need be running."""

import time
import uuid
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.storage.checkpoints.checkpoint import NewCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.state_folder import CHECKPOINTS
from cookhouse.server.storage.store.rows import CheckpointRow, RunRow
from cookhouse.server.storage.store.state_dir import DATABASE, lock_state_dir
from cookhouse.server.storage.store.store import Store


def add_checkpoint(
    state_dir: Path,
    files: Path,
    *,
    name: str,
    base_model: str,
    lora: LoraSpec,
    has_optimizer: bool = False,
    api_key: str,
    source: str,
) -> CheckpointRow:
    """Move a folder of weights into a state folder, as a checkpoint of a training run of its own.

    `source` says where it came from, in the run's metadata.

    Raises:
        InputError: a server is running there, or the name or the key cannot be used.
        ServiceError: the disk is full, or failed otherwise.
    """
    owner = KeyRing([api_key]).owner_of(api_key)
    session_id, now = uuid.uuid4().hex, time.time()
    model_id = f"{session_id}:train:0"
    run = RunRow(
        model_id=model_id,
        session_id=session_id,
        owner=owner,
        base_model=base_model,
        lora=asdict(lora),
        created_at=now,
        last_request_at=now,
        user_metadata={"imported_from": source},
    )
    new = NewCheckpoint(
        model_id=model_id,
        kind="weights",
        name=name,
        owner=owner,
        base_model=base_model,
        lora=lora,
        has_optimizer=has_optimizer,
        ttl_seconds=None,
        overwrite=False,
        user_metadata=run.user_metadata,
    )
    with lock_state_dir(state_dir), closing(Store(state_dir / DATABASE)) as store:
        row = Checkpoints(state_dir / CHECKPOINTS, store).write(new, lambda folder: _move(files, folder))
        store.add_run(run)
        store.flush()
    return row


def delete_checkpoint(state_dir: Path, path: str) -> bool:
    """Delete the checkpoint at a `tinker://` path. Returns whether its files were there; else they are lost, or at
    another place.

    Raises:
        InputError: a server is running there, or keeps no such checkpoint.
        StorageError: the disk fails.
    """
    with lock_state_dir(state_dir), closing(Store(state_dir / DATABASE)) as store:
        row = next((row for row in store.every_checkpoint() if row.path == path), None)
        if row is None:
            raise InputError(f"{state_dir} keeps no checkpoint {path}; list what it has with `cookhouse checkpoints`")
        checkpoints = Checkpoints(state_dir / CHECKPOINTS, store)
        has_files = checkpoints.folder_of(row).is_dir()
        checkpoints.delete(row)
        store.flush()
    return has_files


def _move(files: Path, folder: Path) -> None:
    files.rename(folder)
