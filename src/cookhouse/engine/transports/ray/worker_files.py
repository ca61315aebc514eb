"""Files of a worker, as they come and go in parts."""

import re
from pathlib import Path

from cookhouse.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
MAX_PART_BYTES = 2**26
MAX_FILE_BYTES = 2**42


class WorkerFiles:
    """Files below the folder that `worker://` URLs name, written and read in parts. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, offset: int, part: bytes) -> None:
        """Write a part of a file `FOLDER/NAME`.

        Raises:
            InputError: a name that may not be one, or more than a file may have.
            OSError: the disk is full, say.
        """
        if offset < 0 or len(part) > MAX_PART_BYTES or offset + len(part) > MAX_FILE_BYTES:
            raise InputError(f"{len(part):,} bytes at {offset:,} are more than a file of {MAX_FILE_BYTES:,} may have")
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(offset)
            file.write(part)

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """A part of a file, shorter than asked for only at its end."""
        if offset < 0 or not 0 <= num_bytes <= MAX_PART_BYTES:
            raise InputError(f"{num_bytes:,} bytes at {offset:,} cannot be read; at most {MAX_PART_BYTES:,} can")
        with self._path(name).open("rb") as file:
            file.seek(offset)
            return file.read(num_bytes)

    def _path(self, name: str) -> Path:
        return self._folder.joinpath(*parts_of(name))


def parts_of(name: str) -> list[str]:
    """The parts of a file's name, relative to a folder.

    Raises:
        InputError: it could lie elsewhere.
    """
    parts = name.split("/")
    if not all(map(_NAME.fullmatch, parts)):
        raise InputError(f"{name!r} is no name of a file here")
    return parts
