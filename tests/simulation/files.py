"""Files of a journal: on a disk, and in a memory that loses in a crash what a disk may lose."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Files of a folder, by name, which only grow."""

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file, which is made if there is none."""

    def sync(self, name: str) -> None:
        """Return when the file, as it is now, survives a crash."""

    def read(self, name: str) -> bytes:
        """All of a file.

        Raises:
            FileNotFoundError: there is none.
        """

    def list(self) -> Sequence[str]:
        """The names, sorted."""

    def delete(self, name: str) -> None:
        """Remove a file; a crash soon after may bring it back. One that is not there is left alone."""


class FolderFiles:
    """Implements `Files` in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def append(self, name: str, data: bytes) -> None:
        with (self._folder / name).open("ab") as file:
            file.write(data)

    def sync(self, name: str) -> None:
        for path in (self._folder / name, self._folder):  # the folder: else the name may be gone
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def list(self) -> Sequence[str]:
        return sorted(path.name for path in self._folder.iterdir())

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


@dataclass(slots=True)
class _File:
    data: bytes = b""
    num_synced: int = 0
    is_durable: bool = False
    """Whether its name survives a crash: synced once."""


@dataclass
class MemoryFiles:
    """Implements `Files`. What a crash leaves of what was not synced is drawn by `chance`."""

    chance: random.Random
    _files: dict[str, _File] = field(default_factory=dict)
    _deleted: dict[str, _File] = field(default_factory=dict)
    """Files that a crash may bring back."""

    def append(self, name: str, data: bytes) -> None:
        self._files.setdefault(name, _File()).data += data

    def sync(self, name: str) -> None:
        if name not in self._files:
            raise FileNotFoundError(name)
        file = self._files[name]
        file.num_synced, file.is_durable = len(file.data), True
        self._deleted.clear()  # the folder is synced with it

    def read(self, name: str) -> bytes:
        if name not in self._files:
            raise FileNotFoundError(name)
        return self._files[name].data

    def list(self) -> Sequence[str]:
        return sorted(self._files)

    def delete(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None and file.is_durable:
            self._deleted[name] = file

    def crash(self) -> None:
        """Lose power: of what was not synced, a beginning of any length is left, or nothing."""
        returned = {name: file for name, file in self._deleted.items() if self.chance.random() < 0.5}
        survivors = {**returned, **self._files}
        self._deleted, self._files = {}, {}
        for name, file in survivors.items():
            if file.is_durable or self.chance.random() < 0.5:
                kept = file.data[: self.chance.randint(file.num_synced, len(file.data))]
                self._files[name] = _File(kept, len(kept), is_durable=True)
