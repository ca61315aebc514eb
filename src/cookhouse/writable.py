"""Whether files can be written at a place, found out without making any."""

import errno
import os
from pathlib import Path


def unwritable(path: Path) -> str | None:
    """Why nothing can be written at a path, which need not exist; None: as far as one can tell, something can."""
    try:
        place = next(each for each in (path, *path.absolute().parents) if each.exists())
    except OSError as error:  # a name that is too long, or that this user may not look at
        return error.strerror
    if place != path and not place.is_dir():
        return os.strerror(errno.ENOTDIR)
    may = os.W_OK | os.X_OK if place.is_dir() else os.W_OK
    return None if os.access(place, may) else os.strerror(errno.EACCES)
