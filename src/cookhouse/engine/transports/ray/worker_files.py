"""Files of a worker, as they come and go in parts."""

import os
import zlib
from pathlib import Path

from cookhouse.engine.worker.folders import MAX_PART_BYTES, file_sizes, is_file_name, read_part
from cookhouse.errors import InputError
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
        """What has become of all files in a folder, in parts of so many bytes, by name relative to it."""
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
        InputError: it could lie elsewhere.
    """
    if not is_file_name(name):
        raise InputError(f"{name!r} is no name of a file here")
    return name


def _sums(path: Path, num_bytes: int, part_bytes: int) -> Sums:
    parts = (read_part(path, offset, part_bytes) for offset in range(0, max(1, num_bytes), part_bytes))
    return [(len(part), zlib.crc32(part)) for part in parts]
