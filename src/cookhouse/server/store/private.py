"""Files and folders that nobody but this user may read: what tenants sent lies in them."""

import os
from pathlib import Path


def make_private(file: Path) -> None:
    """Make a file if need be, that none but its owner may read or write. Where that cannot be done, whoever opens it is
    told why.
    """
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)
    except OSError:
        pass


def private_folder(folder: Path) -> None:
    """Make a folder if need be, and those above it; a new one none but its owner may enter.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
