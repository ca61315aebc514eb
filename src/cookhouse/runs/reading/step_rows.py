"""The rows of metrics.jsonl around a step, found without reading the file whole."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.runs.reading.lines import Lines, read_bytes
from cookhouse.runs.reading.ranges import MAX_RANGE_BYTES
from cookhouse.telemetry import is_held_out, metrics_row

_ROWS_BEFORE = 120
"""Enough to tell what is usual."""


@dataclass(frozen=True, kw_only=True)
class StepRows:
    """Rows of a metrics file for a step and those before it."""

    rows: list[dict[str, Any]]
    """Of the steps up to that one, the last ones; rows of one step stand together."""
    last_step: int | None
    """0-based: the last step of training in the file; None: no step has finished."""
    num_broken: int
    """Lines among them that are no rows."""


def read_step_rows(path: Path, lines: Lines, step: int) -> StepRows:
    """The rows up to a step, 0-based, of a file whose lines are known."""
    places = range(len(lines))
    end = bisect_right(places, step, key=lambda line: _step_of(path, lines, line))
    found = [_row(path, lines, line) for line in places[max(0, end - _ROWS_BEFORE) : end]]
    rows = [row for row in found if row is not None]
    return StepRows(rows=rows, last_step=_last_step(path, lines), num_broken=len(found) - len(rows))


def has_step(path: Path, lines: Lines, step: int) -> bool:
    """True if there is a row of training of that step."""
    places = range(len(lines))
    start = bisect_left(places, step, key=lambda line: _step_of(path, lines, line))
    end = bisect_right(places, step, key=lambda line: _step_of(path, lines, line))
    return any(_is_of_training(_row(path, lines, line)) for line in places[start:end])


def _last_step(path: Path, lines: Lines) -> int | None:
    rows = (_row(path, lines, line) for line in reversed(range(len(lines))))
    return next((row["step"] for row in rows if row is not None and _is_of_training(row)), None)


def _is_of_training(row: dict[str, Any] | None) -> bool:
    return row is not None and any(name != "step" and not is_held_out(name) for name in row)


def _step_of(path: Path, lines: Lines, line: int) -> int:
    """Of a line that is no row, that of the row before it."""
    rows = (_row(path, lines, each) for each in range(line, -1, -1))
    return next((int(row["step"]) for row in rows if row is not None), -1)


def _row(path: Path, lines: Lines, line: int) -> dict[str, Any] | None:
    start, end = lines.span(line)
    if end - start > MAX_RANGE_BYTES:  # longer than what the curves read
        return None
    return metrics_row(read_bytes(path, start, end))
