"""Folders that are written whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from cookhouse.errors import InputError
from cookhouse.files import make_folder

_HEX = "[0-9a-f]" * 32


@contextmanager
def new_folder(folder: Path, *, is_durable: bool = True) -> Iterator[Path]:
    """A folder to fill, under a temporary name; leaving flushes it to disk, if durable, and renames it to `folder`.

    Raises:
        InputError: the folder exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    if folder.exists():
        raise InputError(f"folder {folder} exists; choose another name")
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    make_folder(temporary)
    try:
        yield temporary
        _let_umask_decide(temporary)
        if is_durable:
            for path in (*temporary.rglob("*"), temporary):
                _flush(path)
        temporary.rename(folder)
        if is_durable:
            _flush(folder.parent)
    except SafetensorError as error:
        raise OSError(str(error)) from error  # which says what the system said
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unfinished_of(folder: Path) -> Sequence[Path]:
    """Remains of a folder that a process was filling when it was killed."""
    return list(folder.parent.glob(f".{folder.name}.{_HEX}"))


def _let_umask_decide(folder: Path) -> None:
    """Give new files the mode that others get here: safetensors makes its own readable by their owner alone."""
    probe = folder / f".{uuid.uuid4().hex}"
    probe.touch()
    mode = probe.stat().st_mode & 0o666
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
