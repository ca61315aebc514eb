"""Large bodies of the journal: those of a commit in one object, written once, below a URL."""

import errno
import itertools
import logging
import os
import re
import uuid
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from cookhouse.blobs import BlobStore, open_blobs
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import sync
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.store.aside import put_aside

_log = logging.getLogger(__name__)
_ASIDE = "put-aside"
MAX_ROW_BYTES = 256 * 1024
"""A file costs two syncs more than a row. Larger bodies take longer through the database, which writes them twice, and
would leave it large."""
_NAME = re.compile(r"[0-9a-f]{32}\.segment")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DamagedBodyError(StorageError):
    """A body of the journal cannot be read, or is not the one that was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a body, with its checksum."""

    segment: str | None = None
    """None: in its row."""
    offset: int | None = None
    num_bytes: int
    crc: int
    """CRC-32."""


class _Objects(Protocol):
    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Return when the object and its name survive a crash."""

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Fewer bytes where the object ends. Raises InputError or OSError: there is none."""

    def whole(self, name: str) -> bytes:
        """Raises as `read`."""

    def delete(self, name: str) -> None:
        """One that is not there is left alone."""

    def put_aside(self, names: Sequence[str]) -> None:
        """Move objects to where none is looked for, and say so."""

    def names(self) -> Sequence[str]: ...


class SegmentFiles:
    """Blocking calls; those that change something come from one thread at a time."""

    def __init__(self, url: str) -> None:
        """`file:///folder`, which is made if need be, a URL of a `BlobStore`, or `rows`: bodies stay in the database.

        Raises:
            InputError: the URL cannot be used.
        """
        self._url = url
        self._objects: _Objects | None = None
        if url.startswith("file://"):
            self._objects = _Folder(Path(unquote(url.removeprefix("file://"))))
        elif "://" in url:
            self._objects = _Blobs(open_blobs(url))
        elif url != "rows":
            raise InputError(f"{url!r} is no place for a journal; write file:///FOLDER, s3://BUCKET/FOLDER or rows")

    def write(self, bodies: Sequence[bytes]) -> Sequence[Place]:
        """Write bodies, and return the place of each; those that are not for their rows are on the disk when this
        returns.

        Raises:
            StorageBusyError: the disk is full, or a cloud away; nothing was written.
            StorageError: it failed otherwise; the same.
        """
        places = [Place(num_bytes=len(body), crc=zlib.crc32(body)) for body in bodies]
        large = [body for body in bodies if len(body) > MAX_ROW_BYTES]
        if self._objects is None or not large:
            return places
        name = f"{uuid.uuid4().hex}.segment"
        with _own_errors():
            self._objects.write(name, large)
        offsets = itertools.accumulate(map(len, large), initial=0)
        return [
            replace(place, segment=name, offset=next(offsets)) if place.num_bytes > MAX_ROW_BYTES else place
            for place in places
        ]

    def read(self, place: Place, row_body: bytes | None) -> bytes:
        """A body, from its segment or, where it lies there, its row.

        Raises:
            DamagedBodyError: it is not what was written.
            StorageError: the segments cannot be reached.
        """
        body = row_body if place.segment is None else self._read_segment(place.segment, place.offset, place.num_bytes)
        if body is None or len(body) != place.num_bytes or zlib.crc32(body) != place.crc:
            where = "the database" if place.segment is None else f"segment {place.segment}"
            raise DamagedBodyError(
                f"the service's journal is damaged: {where} does not hold the {place.num_bytes:,} bytes of a request "
                "that were written there; tell its operator"
            )
        return body

    def _read_segment(self, name: str, offset: int | None, num_bytes: int) -> bytes | None:
        if not _NAME.fullmatch(name) or offset is None:  # a row that was tampered with names no file of ours
            return None
        if self._objects is None:
            raise DamagedBodyError(f"the service's journal was set to {self._url}, and segment {name} lies elsewhere")
        with _own_errors():
            try:
                return self._objects.read(name, offset, num_bytes)
            except (FileNotFoundError, InputError):
                return None

    def whole(self, name: str) -> bytes | None:
        """A segment; None if it is not there. Raises StorageError."""
        assert self._objects is not None, "bodies in rows are in no segment"
        with _own_errors():
            try:
                return self._objects.whole(name)
            except (FileNotFoundError, InputError):
                return None

    def delete(self, names: Sequence[str]) -> None:
        """Raises StorageError: one could not be deleted; again does no harm."""
        for name in names:
            assert _NAME.fullmatch(name.removeprefix(".")), f"{name!r} is no segment"
            if self._objects is not None:
                with _own_errors():
                    self._objects.delete(name)

    def put_aside(self, names: Collection[str]) -> None:
        """Keep segments that no row names out of the way. Raises StorageError."""
        if self._objects is not None and names:
            with _own_errors():
                self._objects.put_aside(sorted(names))

    def names(self) -> set[str]:
        """Of all segments there are. Raises StorageError."""
        return self._found(_NAME)

    def unfinished(self) -> set[str]:
        """Names of those that are being written, or that a crash kept from being finished. Raises StorageError."""
        return self._found(_UNFINISHED)

    def _found(self, pattern: re.Pattern[str]) -> set[str]:
        if self._objects is None:
            return set()
        with _own_errors():
            return {name for name in self._objects.names() if pattern.fullmatch(name)}


class _Folder:
    """Implements `_Objects` in a folder of this machine, for its user alone."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync(folder.parent)
        except OSError as error:
            raise InputError(f"the journal cannot be kept in {folder}: {error.strerror}; name another place") from error
        self._folder = folder

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        path = self._folder / f".{name}"
        try:
            # The mode is given when it is made: until a later chmod, others could open it.
            with open(path, "xb", buffering=0, opener=_private) as file:
                for part in parts:
                    left = memoryview(part)
                    while left:
                        left = left[file.write(left) :]
                os.fsync(file.fileno())
            path.rename(self._folder / name)
            sync(self._folder)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        with (self._folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(num_bytes)

    def whole(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def put_aside(self, names: Sequence[str]) -> None:
        put_aside(self._folder, [self._folder / name for name in names])

    def names(self) -> Sequence[str]:
        return [path.name for path in self._folder.iterdir()]


class _Blobs:
    """Implements `_Objects` in a blob store."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._last: tuple[str, bytes] = ("", b"")
        """The object that was read last: a replay asks for its bodies one after the other."""

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        self._blobs.put(name, b"".join(parts))

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        last, content = self._last
        if last != name:
            content = self._blobs.get(name)
            self._last = (name, content)
        return content[offset : offset + num_bytes]

    def whole(self, name: str) -> bytes:
        return self._blobs.get(name)

    def delete(self, name: str) -> None:
        if self._blobs.exists(name):
            self._blobs.delete(name)

    def put_aside(self, names: Sequence[str]) -> None:
        for name in names:
            self._blobs.put(f"{_ASIDE}/{name}", self._blobs.get(name))
            self._blobs.delete(name)
        _log.warning(
            "%d segments of the journal are not in the database (which was lost or replaced, or the server died while "
            "it wrote) and were put aside at %s",
            len(names),
            self._blobs.address(_ASIDE),
        )

    def names(self) -> Sequence[str]:
        return self._blobs.list()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except InputError as error:
        raise StorageError(f"the service's journal cannot be used: {error}") from error
    except ServiceError as error:  # a store in a cloud is away for moments
        raise StorageBusyError(f"the service's journal cannot be used now: {error}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageBusyError("the service's disk is full; free space on it, and try again") from error
        raise StorageError(f"the service's journal cannot be used: {error.strerror}; see to its disk") from error
