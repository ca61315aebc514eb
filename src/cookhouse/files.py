"""Writing files so that a crash leaves old or new content, never half of it."""

import errno
import json
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cookhouse.errors import InputError

_BLOCK_BYTES = 4096
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
}


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a place that cannot be written into an `InputError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise InputError(f"no space left to write {path}; free some, or choose another log_path") from error
        if error.errno in _REFUSED:
            raise cannot_write(path, error.strerror) from error
        raise


def cannot_write(path: Path, reason: str | None) -> InputError:
    """Error for a place in a run directory where nothing can be written."""
    return InputError(f"cannot write {path}: {reason}; choose another log_path")


def is_folder(path: Path) -> bool:
    """True if a folder is there; also of a path that no file system could have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


_FREE_TEXTS = ("prompt", "pattern", "metadata")


def expanded_home(setting: str, text: str) -> str:
    """A setting's text, or a list by commas, in which `~` before a place is the home, as a shell has it that sees one.
    What is no place, such as a prompt, stays.
    """
    if "~" not in text or any(word in setting for word in _FREE_TEXTS):
        return text
    return re.sub(r"(^|,)~(?=/|$|,)", lambda found: found[1] + str(Path.home()), text)


def make_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder, and those above it that are missing; others may do no more there than in the one that was there.

    Raises:
        FileExistsError: it is there, unless that is allowed.
    """
    parent = next(above for above in folder.parents if above.exists())
    mode = 0o777 & parent.stat().st_mode
    for missing in reversed([above for above in folder.parents if not above.exists()]):
        missing.mkdir(mode=mode, exist_ok=True)
    folder.mkdir(mode=mode, exist_ok=exist_ok)


def sync(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str, *, is_synced: bool = True) -> None:
    """Replace a file's content, or create it. `is_synced`: it is on the disk when this returns."""
    replacement = path.with_name(path.name + ".new")
    try:
        with file_errors(path), replacement.open("w", encoding="utf-8") as file:
            file.write(text)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        replacement.replace(path)
    finally:
        replacement.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Add one line that is on disk when this returns; a torn line that a crash left at the end is removed first."""
    with file_errors(path), path.open("a+b") as file:
        file.truncate(_whole_size(file))
        _append(file, line.encode() + b"\n")


def append_row(path: Path, row: Mapping[str, Any], *, is_private: bool = False) -> int:
    """Add a row to a JSONL file of a user's own, whose last line may lack its end; the number of its line, from 1.

    `is_private`: where there is no such file yet, one is made that nobody else may read.

    Raises:
        InputError: the file holds something else, and is left alone.
        OSError: it cannot be written.
    """

    def made(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 if is_private else 0o666)

    with open(path, "a+b", opener=made) as file:
        file.seek(0)
        number, last = next(iter(deque(enumerate(file, start=1), maxlen=1)), (0, b""))
        if last and not _is_row(last):
            raise InputError(f"{path} holds something that is no JSONL, and is left alone; name another file")
        end = b"\n" if last and not last.endswith(b"\n") else b""
        _append(file, end + json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return number + 1


def _append(file: BinaryIO, data: bytes) -> None:
    """Add all of it, on the disk when this returns, or nothing."""
    whole = file.seek(0, os.SEEK_END)
    try:
        while data:  # past the file's buffer, which would be written once more as it is closed
            data = data[os.write(file.fileno(), data) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(whole)
        raise


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:  # bytes that are no text, or text that is no JSON
        return False


def _whole_size(file: BinaryIO) -> int:
    """Bytes up to the last newline, found from the end: a file of many lines is not read for each line more."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that end in a newline, without it; none if the file does not exist."""
    if not path.exists():
        return []
    return [line[:-1] for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def unwritable(path: Path) -> str | None:
    """Why nothing can be written at a path, which need not exist; None: a file could be made there, or opened.

    It is tried: what a mount, a quota or a list of rights forbids is not told by mode bits. No file is left.
    """
    try:
        place = next(each for each in (path, *path.absolute().parents) if each.exists())
    except OSError as error:  # a name that is too long, or that this user may not look at
        return error.strerror
    if place != path and not place.is_dir():
        return os.strerror(errno.ENOTDIR)
    try:
        with tempfile.TemporaryFile(dir=place) if place.is_dir() else place.open("r+b"):
            return None
    except OSError as error:
        return error.strerror
