"""Checkpoints in a state folder, read without its server."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from cookhouse.errors import InputError
from cookhouse.files import unwritable
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.store.database import is_outdated
from cookhouse.server.storage.store.state_dir import DATABASE, is_state_dir, lock_state_dir
from cookhouse.server.storage.store.store import Store

CHECKPOINTS = "checkpoints"


def stored_checkpoints(state_dir: Path) -> Sequence[StoredCheckpoint]:
    """The checkpoints of every tenant, oldest first. A server of this version may be running. Where the folder cannot
    be written, as on a mount to read from, a copy of its database is asked.

    Raises:
        InputError: no server has kept its state here, or one of another version does.
    """
    if not is_state_dir(state_dir):
        raise InputError(f"{state_dir} is not the state folder of a server: it has no {DATABASE}")
    with ExitStack() as stack:
        file = state_dir / DATABASE
        if unwritable(state_dir) is not None:
            file = _copied(file, Path(stack.enter_context(TemporaryDirectory(prefix="cookhouse-"))))
        elif is_outdated(file):
            with lock_state_dir(state_dir):
                Store(file).close()
        store = stack.enter_context(closing(Store(file)))
        rows = store.every_checkpoint()
        runs = {(row.model_id, row.owner): store.run(row.model_id, row.owner) for row in rows}
    return [
        StoredCheckpoint(
            row=row,
            folder=state_dir / CHECKPOINTS / row.checkpoint_id,
            run_metadata=run.user_metadata if (run := runs[row.model_id, row.owner]) is not None else {},
        )
        for row in rows
    ]


def _copied(file: Path, into: Path) -> Path:
    """The database, with what its log has that is not in it yet; nobody writes to it meanwhile."""
    for name in (file.name, f"{file.name}-wal"):
        if (source := file.with_name(name)).is_file():
            copyfile(source, into / name)
    return into / file.name
