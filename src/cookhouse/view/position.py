"""Up to where the metrics of a run were read, as the id of an event: who comes again with it misses nothing."""

import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cookhouse.runs.names import METRICS_FILE
from cookhouse.runs.reading.ranges import read_before

_MARK_BYTES: Final = 64


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in metrics.jsonl, and the time at which the folder was looked at."""

    offset: int
    inode: int
    mark: int
    """Checksum of the bytes before the offset: a file that was cut and has grown again has others there."""
    time_ns: int

    @classmethod
    def of(cls, folder: Path, offset: int) -> "Position":
        """Of the file that is there now, at its end at most. Blocking."""
        now = time.time_ns()
        before = read_before(folder / METRICS_FILE, offset, _MARK_BYTES)
        if before is None:
            return cls(offset=0, inode=0, mark=0, time_ns=now)
        return cls(offset=before.end, inode=before.inode, mark=zlib.crc32(before.data), time_ns=now)

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """As `__str__` writes it; None if that is no position."""
        parts = text.split("-")
        if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) <= 20 for part in parts):
            return None
        offset, inode, mark, time_ns = map(int, parts)
        return cls(offset=offset, inode=inode, mark=mark, time_ns=time_ns)

    def __str__(self) -> str:
        return f"{self.offset}-{self.inode}-{self.mark}-{self.time_ns}"

    def holds(self, folder: Path) -> bool:
        """True if the file still has what was read: it was neither cut nor replaced. Blocking."""
        if not self.offset:
            return True
        now = Position.of(folder, self.offset)
        return (now.offset, now.inode, now.mark) == (self.offset, self.inode, self.mark)
