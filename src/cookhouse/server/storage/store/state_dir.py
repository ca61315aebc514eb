"""The folder of a server's state, held by one process at a time."""

import fcntl
from pathlib import Path
from typing import IO

from cookhouse.errors import InputError
from cookhouse.server.storage.store.private import make_private

DATABASE = "server.db"


def is_state_dir(folder: Path) -> bool:
    """True if a server has kept its state here."""
    return (folder / DATABASE).is_file()


def lock_state_dir(folder: Path) -> IO[bytes]:
    """Make the folder if need be, and hold it until the returned file is closed or the process ends.

    Raises:
        InputError: another server holds it, or it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(folder / "server.lock")
        lock = (folder / "server.lock").open("ab")
    except OSError as error:
        raise InputError(f"the state folder {folder} cannot be used: {error.strerror}; choose another") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise InputError(f"{folder} is in use by another server; stop it, or choose another folder") from error
    return lock
