"""Files and folders that nobody but this user may read: what tenants sent lies in them."""

import contextlib
import os
import secrets
from pathlib import Path


def make_private(file: Path) -> None:
    """Make a file if need be, that none but its owner may read or write. Where that cannot be done, whoever opens it
    gets the reason.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)


SALT_FILE = "tenant-salt"
"""In a state folder: the secret with which the names of tenants in metrics are made."""


def read_or_draw(file: Path) -> bytes:
    """The secret in a file that its owner alone may read; drawn where there is none.

    Raises:
        OSError: it cannot be read or written.
    """
    if file.exists() and (kept := file.read_bytes()):
        return kept
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_private(file)
    drawn = secrets.token_bytes(32)
    file.write_bytes(drawn)
    return drawn


def private_folder(folder: Path) -> None:
    """Make a folder of the server's own if need be, and those above it, that none but its owner may enter.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
