"""Seconds of work that simulated workers have done: each writes them down for whoever looks, from another process."""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_FIELDS = struct.Struct("ddd")
"""Seconds of work that is done, when the present one began, and what it will take."""
_SUFFIX = ".busy"


class Busy:
    """Of one worker, in the file FILE.busy."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(file.with_suffix(_SUFFIX), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._seconds = 0.0
        self._write(0.0, 0.0)

    def sleep(self, seconds: float) -> None:
        """Work for so long. A sleep that takes longer is no more work."""
        if seconds <= 0:
            return
        self._write(time.monotonic(), seconds)
        time.sleep(seconds)
        self._seconds += seconds
        self._write(0.0, 0.0)

    def _write(self, began_at: float, seconds: float) -> None:
        os.pwrite(self._descriptor, _FIELDS.pack(self._seconds, began_at, seconds), 0)


def busy_seconds(folder: Path) -> Mapping[str, float]:
    """Seconds of work that the workers of a folder have done until now, by name."""
    now = time.monotonic()  # one clock of the whole machine
    found = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        done, began_at, seconds = _FIELDS.unpack(file.read_bytes())
        found[file.stem] = done + (min(now - began_at, seconds) if seconds else 0.0)
    return found
