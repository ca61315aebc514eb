"""The lock of a run directory: held by the process that runs in it, and gone with that process, however it ends."""

import fcntl
import logging
import time
from pathlib import Path
from typing import IO

from cookhouse.errors import InputError
from cookhouse.runs.names import LOCK_FILE

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0
"""Somebody who only looks whether the lock is held has it for a moment."""


def hold(folder: Path) -> IO[bytes]:
    """Hold a run directory until the returned file is closed or the process ends.

    Raises:
        InputError: another run holds it.
    """
    lock = (folder / LOCK_FILE).open("wb")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                lock.close()
                raise busy(folder) from error
            time.sleep(0.05)
        except OSError as error:  # a file system without locks
            logger.warning("%s cannot be locked (%s): see that no second run uses this folder", folder, error.strerror)
            return lock
        else:
            return lock


def is_held(folder: Path) -> bool:
    """True if a process runs in a run directory."""
    return is_locked(folder / LOCK_FILE)


def is_locked(path: Path) -> bool:
    """True if a process holds the lock of a file."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # not there, not ours to read, or a file system without locks
        return False
    return False


def busy(folder: Path) -> InputError:
    """Error for a second run in a folder."""
    return InputError(f"a run is going on in {folder}; wait for it to end, or choose another log_path")
