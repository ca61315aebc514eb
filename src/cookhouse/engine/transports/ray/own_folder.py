"""The folder of a worker on a node that sees none of the server's: tenants' weights, which are not to stay there."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cookhouse.errors import ServiceError


class OwnFolder:
    """New, and held as long as this process lives. What processes that were killed left beside it is deleted, now and
    when it is: one whose node was killed may live on for a moment.
    """

    def __init__(self) -> None:
        """
        Raises:
            ServiceError: somebody else owns what it would lie in.
        """
        base = Path(tempfile.gettempdir()) / f"cookhouse-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise ServiceError(f"{base} is not a folder of this user; remove it, or set TMPDIR for Ray on this node")
        with _turn(base):  # a new folder is not held at once
            _delete_left(base)
            self.path = Path(tempfile.mkdtemp(dir=base))
            self._lock = _hold(self.path)

    def delete(self) -> None:
        """Delete it, as far as it can be, and let go of it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        with contextlib.suppress(OSError), _turn(self.path.parent):
            _delete_left(self.path.parent)


@contextlib.contextmanager
def _turn(base: Path) -> Iterator[None]:
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _delete_left(base: Path) -> None:
    """Delete what no process holds. The caller has the turn."""
    for folder in base.iterdir():
        _delete_unless_held(folder)


def _delete_unless_held(folder: Path) -> None:
    with contextlib.suppress(OSError):  # no folder; or one that its own process deletes at this moment
        descriptor = _hold(folder)
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _hold(folder: Path) -> int | None:
    """A descriptor of a folder with a lock, which ends with the process; None: another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
