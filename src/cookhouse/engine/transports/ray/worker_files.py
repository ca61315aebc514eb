"""Files of a worker on a node: its own folder, and parts that come and go."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from cookhouse.engine.worker.folders import MAX_PART_BYTES, file_sizes, is_file_name, read_part
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import make_folder

MAX_FILE_BYTES = 2**42

Sums = list[tuple[int, int]]
"""Bytes and CRC-32 of each part of a file."""


class WorkerFiles:
    """Files below the folder that `worker://` URLs name, written and read in parts. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, offset: int, part: bytes) -> None:
        """Write a part of a file `FOLDER/NAME`. Parts of a new file may come in any order, and several at once.

        Raises:
            InputError: a name that may not be one, or more than a file may have.
            OSError: the disk is full, say.
        """
        if offset < 0 or len(part) > MAX_PART_BYTES or offset + len(part) > MAX_FILE_BYTES:
            raise InputError(f"{len(part):,} bytes at {offset:,} are more than a file of {MAX_FILE_BYTES:,} may have")
        path = self._path(name)
        make_folder(path.parent, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)  # never truncated: another part may be in it
        try:
            rest = memoryview(part)
            while rest:
                num_written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[num_written:], offset + num_written
        finally:
            os.close(descriptor)

    def sums(self, name: str, part_bytes: int) -> dict[str, Sums]:
        """Checksums of all files in a folder, in parts of so many bytes, by name relative to it."""
        folder = self._path(name)
        return {each: _sums(folder / each, num_bytes, part_bytes) for each, num_bytes in file_sizes(folder).items()}

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """See `read_part`."""
        return read_part(self._path(name), offset, num_bytes)

    def _path(self, name: str) -> Path:
        return self._folder / checked_name(name)


def checked_name(name: str) -> str:
    """A file's name, relative to a folder.

    Raises:
        InputError: it could lie in another folder.
    """
    if not is_file_name(name):
        raise InputError(f"{name!r} is no name of a file here")
    return name


def _sums(path: Path, num_bytes: int, part_bytes: int) -> Sums:
    parts = (read_part(path, offset, part_bytes) for offset in range(0, max(1, num_bytes), part_bytes))
    return [(len(part), zlib.crc32(part)) for part in parts]


class OwnFolder:
    """New, and held as long as this process lives. What processes that were killed left next to it is deleted, now and
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
