"""What a state folder holds, read without its server."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.server.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.store.database import is_outdated
from cookhouse.server.store.state_dir import lock_state_dir
from cookhouse.server.store.store import Store

DATABASE = "server.db"
CHECKPOINTS = "checkpoints"


def is_state_dir(folder: Path) -> bool:
    """Whether a server has kept its state here."""
    return (folder / DATABASE).is_file()


def stored_checkpoints(state_dir: Path) -> Sequence[StoredCheckpoint]:
    """The checkpoints of every tenant, oldest first. A server of this version may be running.

    Raises:
        InputError: no server has kept its state here, or one of another version does.
    """
    if not is_state_dir(state_dir):
        raise InputError(f"{state_dir} is not the state folder of a server: it has no {DATABASE}")
    if is_outdated(state_dir / DATABASE):
        with lock_state_dir(state_dir):
            Store(state_dir / DATABASE).close()
    with closing(Store(state_dir / DATABASE)) as store:
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
