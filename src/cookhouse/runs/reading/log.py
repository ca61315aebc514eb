"""logs.log by ranges: a part of it as lines that are harmless on a page and on a terminal."""

from dataclasses import dataclass
from pathlib import Path

from cookhouse.errors import printable
from cookhouse.runs.reading.ranges import Range, read_before, read_range

LOG_BYTES = 1 << 16
"""Read of a log at once."""
_MAX_CHARACTERS = 2000
"""Of a line; what was left out is said."""


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """Some lines of a log."""

    lines: list[str]
    """Control characters are spelled out in them."""
    start: int
    """Byte at which the first begins: the part before ends there."""
    end: int
    """Byte behind the last: the part behind begins there."""
    size: int
    """Bytes of the whole log; 0 where there is none."""


def log_before(path: Path, end: int | None = None) -> LogPart:
    """The lines that end at a byte or before it; default: the last ones."""
    found = read_before(path, end, LOG_BYTES)
    if found is None:
        return LogPart(lines=[], start=0, end=0, size=0)
    # A part begins with a line, unless a single one is longer than the part.
    skipped = found.data.find(b"\n") + 1 if found.start > 0 else 0
    if skipped == len(found.data):
        skipped = 0
    return _part(found, skipped, len(found.data))


def log_from(path: Path, start: int) -> LogPart:
    """The whole lines from a byte on. One behind the end means a log that was replaced: it is read from its beginning.

    Of a line that is longer than a part, its pieces come as lines.
    """
    found = read_range(path, start, LOG_BYTES)
    if found is not None and start > found.size:
        found = read_range(path, 0, LOG_BYTES)
    if found is None:
        return LogPart(lines=[], start=0, end=0, size=0)
    stop = found.data.rfind(b"\n") + 1
    if not stop and len(found.data) == LOG_BYTES:
        stop = len(found.data)
    return _part(found, 0, stop)


def _part(found: Range, begin: int, stop: int) -> LogPart:
    text = found.data[begin:stop].decode("utf-8", errors="replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return LogPart(
        lines=[_line(line) for line in lines],
        start=found.start + begin,
        end=found.start + stop,
        size=found.size,
    )


def _line(line: str) -> str:
    shown = printable(line[:_MAX_CHARACTERS].removesuffix("\r"), keep="\t")
    num_more = len(line) - _MAX_CHARACTERS
    return shown if num_more <= 0 else f"{shown}… ({num_more:,} more characters)"
