"""Folders that URLs name on a worker's machine: one that server and worker both see, or one of the worker's own."""

import re
import shutil
from pathlib import Path

from cookhouse.engine.contract import Url, shared_folder
from cookhouse.errors import InputError
from cookhouse.files import make_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
MAX_PART_BYTES = 2**26
"""Read or written at a time."""


class Folders:
    """`worker://WORKER/NAME` lies in a folder of the worker's, where nothing else does. Emptied when it is made."""

    def __init__(self, worker: str, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)

    def path(self, url: Url) -> Path:
        """Path of a URL's folder or file, whether or not there is one.

        Raises:
            InputError: it is no URL that this worker can use.
        """
        return shared_folder(url) or self._own(url)

    def new(self, url: Url) -> Path:
        """Path at which a new folder is to be written; its parent is made, if it is the worker's own."""
        path = self.path(url)
        if path.parent == self._folder:
            make_folder(path.parent, exist_ok=True)
        return path

    def read(self, url: Url, offset: int, num_bytes: int) -> bytes:
        """A part of a file of the worker's own."""
        path = self._own(url)
        if not path.is_file():
            raise InputError(f"there is no file {url!r}")
        return read_part(path, offset, num_bytes)

    def free(self, url: Url) -> None:
        """Delete a folder of the worker's own."""
        path = self._own(url)
        if path.parent != self._folder:
            raise InputError(f"{url!r} is not a folder of this worker")
        shutil.rmtree(path, ignore_errors=True)

    def _own(self, url: Url) -> Path:
        scheme, _, rest = url.partition("://")
        worker, _, name = rest.partition("/")
        if scheme == "worker" and worker == self._worker and is_file_name(name):
            return self._folder / name
        raise InputError(f"{url!r} is no URL of files here; file:///FOLDER and worker://{self._worker}/NAME are")


def is_file_name(name: str) -> bool:
    """True if it names a file or folder below another, and can name none outside it."""
    return all(map(_NAME.fullmatch, name.split("/")))


def read_part(path: Path, offset: int, num_bytes: int) -> bytes:
    """A part of a file, shorter than asked for only at its end.

    Raises:
        InputError: more than may be read at a time.
    """
    if offset < 0 or not 0 <= num_bytes <= MAX_PART_BYTES:
        raise InputError(f"{num_bytes:,} bytes at {offset:,} cannot be read; at most {MAX_PART_BYTES:,} at a time can")
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(num_bytes)


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of all files in a folder, by name relative to it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
