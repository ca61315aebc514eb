"""Cache folder of compiled kernels: nobody else may write there, or they could have us load any code."""

import functools
import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger(__name__)


def cache_folder() -> Path | None:
    """The folder, made if need be; None where there is none to trust, which is said once."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry among the users
        return _refuse("this user has no home; XDG_CACHE_HOME may name a folder to keep them in")
    folder = Path(home).absolute() / "cookhouse"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = folder.resolve(strict=True)
        strangers = [place for place in (resolved, *resolved.parents) if not _is_safe(place, is_kept=place == resolved)]
    except OSError as error:
        return _refuse(f"{folder} cannot be used ({error}); XDG_CACHE_HOME may name another place")
    if strangers:
        return _refuse(f"others may write to {strangers[0]}; `chmod go-w` it, or name another place in XDG_CACHE_HOME")
    if not os.access(resolved, os.W_OK):
        return _refuse(f"{folder} cannot be written to; XDG_CACHE_HOME may name another place")
    return resolved


def is_ours(file: Path) -> bool:
    """True if there is such a file, no link, and only this user or root can have written it."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return False
    is_private = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()) and is_private


@functools.cache
def _refuse(why: str) -> None:
    _log.warning("compiled kernels are not kept, and each start takes seconds longer: %s", why)


def _is_safe(folder: Path, *, is_kept: bool) -> bool:
    """True if only this user and root put entries into a folder, or, around the one that is kept, exchange them."""
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    others = stat.S_IWOTH
    # Where each user has a group of their own, folders are often writable for it.
    if is_kept or status.st_gid != os.getegid():
        others |= stat.S_IWGRP
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and not is_kept
    return is_sticky or not status.st_mode & others
