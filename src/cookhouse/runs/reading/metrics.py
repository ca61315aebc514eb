"""metrics.jsonl, read while it grows: rows from an offset on, and all of it as columns that take what is new."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.report import MetricColumns
from cookhouse.runs.reading.ranges import MAX_RANGE_BYTES, read_range
from cookhouse.telemetry import metrics_row

MAX_ROWS = 200
"""Told at once at most."""
_MARK_BYTES = 64
_MAX_READ_BYTES = 1 << 28
"""Of a file whose curves are drawn; what lies behind is left out, and said."""


@dataclass(frozen=True, kw_only=True)
class MetricsRows:
    """Whole rows of a metrics file."""

    rows: list[dict[str, Any]]
    start: int
    """Byte at which the first row begins."""
    end: int
    """Byte behind the last one: where to go on."""
    size: int
    num_broken: int
    """Lines between them that are no rows."""


def read_rows(path: Path, start: int, max_rows: int = MAX_ROWS) -> MetricsRows:
    """The rows from an offset on. One behind the end means a file that was cut: it is read from its beginning."""
    found = read_range(path, start)
    if found is not None and start > found.size:
        found = read_range(path, 0)
    if found is None:
        return MetricsRows(rows=[], start=0, end=0, size=0, num_broken=0)
    lines = _whole_lines(found.data)[:max_rows]
    end = found.start + sum(map(len, lines))
    if not lines and len(found.data) == MAX_RANGE_BYTES:  # a line that no run writes
        return MetricsRows(rows=[], start=found.start, end=found.end, size=found.size, num_broken=1)
    rows = [row for line in lines if (row := _row(line)) is not None]
    return MetricsRows(rows=rows, start=found.start, end=end, size=found.size, num_broken=len(lines) - len(rows))


class GrowingMetrics:
    """The metrics of a run, as far as its file has been read: each look reads what is new. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end, self._inode = 0, -1
        self._mark = b""
        """The bytes before the end: a file that took the place of another, even its inode, has others there."""
        self._forget()

    def look(self) -> MetricColumns:
        """The columns, with what has been written since the last look. A file that was cut or replaced is read anew."""
        while self._end < _MAX_READ_BYTES:
            found = read_range(self._path, self._end - len(self._mark))
            if found is None:
                self._forget()
                break
            if found.inode != self._inode or not found.data.startswith(self._mark):
                self._forget()
                self._inode = found.inode
                if found.start:
                    continue
            lines = _whole_lines(found.data[len(self._mark) :])
            for line in lines:
                row = _row(line)
                if row is None:
                    self.num_broken += 1
                else:
                    self.columns.add(row)
            taken = len(self._mark) + sum(map(len, lines))
            is_too_long = not lines and len(found.data) == MAX_RANGE_BYTES
            if is_too_long:
                taken = len(found.data)
                self.num_broken += 1
            self._end = found.start + taken
            self._mark = found.data[max(0, taken - _MARK_BYTES) : taken]
            if self._end >= found.size or not (lines or is_too_long):
                break
        return self.columns

    @property
    def end(self) -> int:
        """Byte up to which it was read."""
        return self._end

    def _forget(self) -> None:
        self.columns = MetricColumns()
        self.num_broken = 0
        """Lines that are no rows."""
        self._end = 0
        self._inode = -1
        self._mark = b""


def _whole_lines(data: bytes) -> list[bytes]:
    """Lines with their ends; what has none yet is left out."""
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def _row(line: bytes) -> dict[str, Any] | None:
    return metrics_row(line)
