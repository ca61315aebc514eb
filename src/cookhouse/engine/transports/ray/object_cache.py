"""Files of the server's machine as objects of Ray's, for as many workers as want them."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ray

PART_BYTES = 2**24


class Part(NamedTuple):
    offset: int
    reference: Any
    """Of Ray's, to the bytes."""


class ObjectCache:
    """Parts of files, each put into Ray's object store once: Ray takes an object to a node once for all workers there.

    `max_bytes` of parts are kept for the next worker that asks; those asked for last.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_parts = max(1, max_bytes // PART_BYTES)
        self._lock = threading.Lock()
        self._parts: OrderedDict[tuple[str, int, int, int], Any] = OrderedDict()

    def parts(self, path: Path) -> Iterator[Part]:
        """A file's parts, at least one. From any thread.

        Raises:
            OSError: it cannot be read.
        """
        with path.open("rb") as file:
            stat = path.stat()
            for offset in range(0, max(1, stat.st_size), PART_BYTES):
                key = str(path), stat.st_ino, stat.st_mtime_ns, offset
                with self._lock:
                    if key not in self._parts:
                        file.seek(offset)
                        self._parts[key] = ray.put(file.read(PART_BYTES))
                    self._parts.move_to_end(key)
                    reference = self._parts[key]
                    while len(self._parts) > self._max_parts:
                        self._parts.popitem(last=False)
                yield Part(offset, reference)
