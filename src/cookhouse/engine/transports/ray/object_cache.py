"""Files of the server's machine as objects of Ray's, for as many workers as want them."""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, NamedTuple

import ray

PART_BYTES = 2**24

_Key = tuple[str, int, int, int]


class Part(NamedTuple):
    offset: int
    reference: Any
    """Of Ray's, to the bytes."""
    sums: tuple[int, int]
    """How many bytes, and their CRC-32."""


class ObjectCache:
    """Parts of files, each put into Ray's object store once: Ray takes an object to a node once for all workers there.

    `max_bytes` of parts are kept for the next worker that asks; those asked for last.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_parts = max(1, max_bytes // PART_BYTES)
        self._lock = threading.Lock()
        self._parts: OrderedDict[_Key, Future[Part]] = OrderedDict()

    def parts(self, path: Path) -> Iterator[Part]:
        """A file's parts, at least one. From any thread.

        Raises:
            OSError: it cannot be read.
            RayError: the object store has no room.
        """
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            for offset in range(0, max(1, stat.st_size), PART_BYTES):
                yield self._part((str(path), stat.st_ino, stat.st_mtime_ns, offset), file)

    def _part(self, key: _Key, file: IO[bytes]) -> Part:
        with self._lock:
            is_known = key in self._parts
            part = self._parts.setdefault(key, Future())
            self._parts.move_to_end(key)
            while len(self._parts) > self._max_parts:
                self._parts.popitem(last=False)
        if not is_known:  # read and put without the lock, so that nobody waits for another's file
            try:
                part.set_result(_put(file, key[-1]))
            except BaseException as error:
                with self._lock:
                    self._parts.pop(key, None)  # the next who asks tries again
                part.set_exception(error)
        return part.result()


def _put(file: IO[bytes], offset: int) -> Part:
    file.seek(offset)
    data = file.read(PART_BYTES)
    return Part(offset, ray.put(data), (len(data), zlib.crc32(data)))
