"""The protocol of a blob store, and a store that keeps a checksum next to each blob, over any files by key."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from cookhouse.errors import InputError, ServiceError

MAX_KEY_CHARACTERS, MAX_PART_CHARACTERS = 512, 200
_SUM_SUFFIX = ".sha256"

Content: TypeAlias = bytes | Path
"""Bytes, or the file that holds them."""


class DamagedBlobError(ServiceError):
    """A store gave back other bytes than were put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Blob that was put."""

    key: str
    num_bytes: int
    sha256: str
    """In hexadecimal."""


class BlobStore(Protocol):
    """Files under keys. A key is a relative path with forward slashes; see `check_key`. Every call blocks."""

    def put(self, key: str, content: Content) -> Blob:
        """Keep bytes or a file under a key, in place of what was there; whoever reads meanwhile sees the one or the
        other, whole.

        Raises:
            InputError: the key cannot be one, the file cannot be read, or the store may not be written.
            ServiceError: the store failed.
        """

    def get(self, key: str) -> bytes:
        """The bytes under a key.

        Raises:
            InputError: there is no such blob, or the key cannot be one.
            DamagedBlobError: the store gave back other bytes than were put.
            ServiceError: it failed.
        """

    def fetch(self, key: str, path: Path) -> None:
        """Write what is under a key to a file, which is made whole or not at all. Raises as `get`."""

    def exists(self, key: str) -> bool:
        """True if there is a blob under a key. Raises as `get`, but for a blob that is missing."""

    def list(self, prefix: str = "") -> Sequence[str]:
        """Keys below a prefix, itself a key; every key where it is empty. In alphabetical order. Raises as `exists`."""

    def delete(self, key: str) -> None:
        """Remove a blob. Raises as `get`."""

    def address(self, key: str) -> str:
        """Address of a blob, for a person: a path or a URL."""


def check_key(key: str) -> str:
    """The key itself.

    Raises:
        InputError: it is too long or absolute, has a part that is empty, too long or begins with a dot, or characters
            that are no part of a file's name everywhere.
    """
    parts = key.split("/")
    is_plain = key.isprintable() and not set(key) & set('\\:*?"<>|')
    has_names = all(part and not part.startswith(".") and len(part) <= MAX_PART_CHARACTERS for part in parts)
    if not is_plain or not has_names or len(key) > MAX_KEY_CHARACTERS:
        raise InputError(
            f"{key[:80]!r} is no key of a blob; a key is a relative path such as runs/first/metrics.jsonl, of at most "
            f"{MAX_KEY_CHARACTERS} characters, its parts not empty, nor beginning with a dot, nor longer than "
            f"{MAX_PART_CHARACTERS}"
        )
    if key.endswith(_SUM_SUFFIX):
        raise InputError(f"{key!r} is no key of a blob: the checksums have names that end in {_SUM_SUFFIX}")
    return key


class SummedBlobStore(ABC):
    """A `BlobStore` over six simpler operations: checks keys, keeps the SHA-256 of each blob in a file next to it, in
    the format of `sha256sum`, and compares it on reading. What others have put there has none, and is read as it is.
    """

    def put(self, key: str, content: Content) -> Blob:
        check_key(key)
        num_bytes, digest = _measure(content)
        # The old sum goes first: whoever is interrupted here leaves a blob without a sum, not one that looks damaged.
        if self._has(key + _SUM_SUFFIX):
            self._remove(key + _SUM_SUFFIX)
        self._write(key, content)
        self._write(key + _SUM_SUFFIX, f"{digest}  {key.rpartition('/')[2]}\n".encode())
        return Blob(key=key, num_bytes=num_bytes, sha256=digest)

    def get(self, key: str) -> bytes:
        self._find(key)
        content = self._read(key)
        self._compare(key, hashlib.sha256(content).hexdigest())
        return content

    def fetch(self, key: str, path: Path) -> None:
        self._find(key)
        part = path.with_name(f".{path.name}.part")
        try:
            self._copy_to(key, part)
            self._compare(key, _measure(part)[1])
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        return self._has(check_key(key))

    def list(self, prefix: str = "") -> Sequence[str]:
        below = f"{check_key(prefix)}/" if prefix else ""
        return sorted(
            key
            for key in self._keys(prefix)
            if key.startswith(below) and not key.endswith(_SUM_SUFFIX) and not key.rpartition("/")[2].startswith(".")
        )

    def delete(self, key: str) -> None:
        self._find(key)
        # As in `put`: nobody would ever look for a sum alone.
        if self._has(key + _SUM_SUFFIX):
            self._remove(key + _SUM_SUFFIX)
        self._remove(key)

    @abstractmethod
    def address(self, key: str) -> str:
        """Address of a blob."""

    @abstractmethod
    def _write(self, key: str, content: Content) -> None: ...

    @abstractmethod
    def _read(self, key: str) -> bytes: ...

    @abstractmethod
    def _copy_to(self, key: str, path: Path) -> None: ...

    @abstractmethod
    def _has(self, key: str) -> bool: ...

    @abstractmethod
    def _keys(self, prefix: str) -> Sequence[str]:
        """At least those below a prefix."""

    @abstractmethod
    def _remove(self, key: str) -> None: ...

    def _find(self, key: str) -> None:
        if not self._has(check_key(key)):
            raise InputError(f"there is no blob {key!r}: nothing is at {self.address(key)}; check the key")

    def _compare(self, key: str, found: str) -> None:
        if not self._has(key + _SUM_SUFFIX):
            return
        put = self._read(key + _SUM_SUFFIX).decode("ascii", "replace").split(" ")[0]
        if put != found:
            raise DamagedBlobError(
                f"blob {self.address(key)} is damaged: its SHA-256 is {found}, and {put} was put; put it again"
            )


def _measure(content: Content) -> tuple[int, str]:
    """Bytes and SHA-256."""
    if isinstance(content, bytes):
        return len(content), hashlib.sha256(content).hexdigest()
    try:
        with content.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest
    except OSError as error:
        raise InputError(f"{content} cannot be read: {error.strerror}") from error
