"""Offsets of lines in a growing file: found once, and again only for what was appended."""

import os
from dataclasses import dataclass
from pathlib import Path

from cookhouse.runs.reading.ranges import open_file

_BLOCK_BYTES = 1 << 20
_MARK_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The whole lines of a file at one moment; one that is being written is not among them."""

    inode: int
    starts: tuple[int, ...] = (0,)
    """Offset of each line, and of what comes behind the last."""
    mark: bytes = b""
    """The last bytes of the last line: a file that has others there is another one."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def span(self, index: int) -> tuple[int, int]:
        """Start and end of a line, without its newline."""
        return self.starts[index], self.starts[index + 1] - 1


def find_lines(path: Path, known: Lines | None = None) -> Lines:
    """The lines of a file. With `known` only what was appended since is read; `known` itself comes back where nothing
    was. What was replaced or cut is read anew. A file that is not there has none.
    """
    try:
        with open_file(path) as file:
            return _lines(file.fileno(), known)
    except FileNotFoundError:
        return Lines(inode=0)


def read_bytes(path: Path, start: int, end: int) -> bytes:
    """A part of a file; shorter where that ends before.

    Raises:
        OSError: the file is gone, or may not be read.
    """
    with open_file(path) as file:
        return os.pread(file.fileno(), max(0, end - start), start)


def _lines(descriptor: int, known: Lines | None) -> Lines:
    status = os.fstat(descriptor)
    if known is None or not _goes_on(descriptor, status, known):
        known = Lines(inode=status.st_ino)
    found = []
    offset = known.starts[-1]
    while block := os.pread(descriptor, _BLOCK_BYTES, offset):
        place = block.find(b"\n")
        while place >= 0:
            found.append(offset + place + 1)
            place = block.find(b"\n", place + 1)
        offset += len(block)
    if not found:
        return known
    mark = os.pread(descriptor, _MARK_BYTES, max(0, found[-1] - _MARK_BYTES))
    return Lines(inode=status.st_ino, starts=(*known.starts, *found), mark=mark[: found[-1]])


def _goes_on(descriptor: int, status: os.stat_result, known: Lines) -> bool:
    end = known.starts[-1]
    is_same = status.st_ino == known.inode and status.st_size >= end
    return is_same and os.pread(descriptor, len(known.mark), end - len(known.mark)) == known.mark
