"""Ranges of a file that may be long, growing, cut or gone while it is read."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_RANGE_BYTES = 1 << 20
"""Read at once at most."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """Bytes of a file, with their place in it."""

    data: bytes
    start: int
    size: int
    """Of the whole file when it was read."""
    inode: int
    """Tells a file that took the place of another."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def open_file(path: Path) -> BinaryIO:
    """A file to read. What is none, such as a pipe, which one would wait at, or a device without an end, is not there.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it may not be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "it is no file", str(path))
    return os.fdopen(descriptor, "rb")


def read_range(path: Path, start: int, max_bytes: int = MAX_RANGE_BYTES) -> Range | None:
    """The bytes of a file from a place on, none behind its end; None if there is no such file."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            start = max(0, min(start, status.st_size))
            file.seek(start)
            return Range(data=file.read(max_bytes), start=start, size=status.st_size, inode=status.st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_before(path: Path, end: int | None = None, max_bytes: int = MAX_RANGE_BYTES) -> Range | None:
    """The bytes of a file before a place, default: its end; None if there is no such file."""
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    end = size if end is None else max(0, min(end, size))
    start = max(0, end - max_bytes)
    return read_range(path, start, end - start)
