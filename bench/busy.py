"""How long simulated workers have been busy: each writes it down for whoever looks, from another process."""

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
        """Be busy for so long."""
        if seconds <= 0:
            return
        began_at = time.monotonic()
        self._write(began_at, seconds)
        time.sleep(seconds)
        self._seconds += time.monotonic() - began_at
        self._write(0.0, 0.0)

    def _write(self, began_at: float, seconds: float) -> None:
        os.pwrite(self._descriptor, _FIELDS.pack(self._seconds, began_at, seconds), 0)


def busy_seconds(folder: Path) -> Mapping[str, float]:
    """Seconds that the workers of a folder have been busy until now, by name."""
    now = time.monotonic()  # one clock of the whole machine
    found = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        done, began_at, seconds = _FIELDS.unpack(file.read_bytes())
        found[file.stem] = done + (min(now - began_at, seconds) if seconds else 0.0)
    return found
