"""The rows of metrics.jsonl around a step, found without reading the file whole."""

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.runs.reading.lines import Lines, read_bytes
from cookhouse.telemetry import is_held_out, is_metrics_row

_ROWS_BEFORE = 120
"""Enough to tell what is usual."""


@dataclass(frozen=True, kw_only=True)
class StepRows:
    """What a metrics file says of a step and of those before it."""

    rows: list[dict[str, Any]]
    """Of the steps up to that one, the last ones; rows of one step stand together."""
    last_step: int | None
    """0-based: the last step of training in the file; None: no step has finished."""


def read_step_rows(path: Path, lines: Lines, step: int) -> StepRows:
    """The rows up to a step, 0-based, of a file whose lines are known.

    Raises:
        InputError: a line is no row.
    """
    places = range(len(lines))
    end = bisect_right(places, step, key=lambda line: _row(path, lines, line)["step"])
    rows = [_row(path, lines, line) for line in places[max(0, end - _ROWS_BEFORE) : end]]
    return StepRows(rows=rows, last_step=_last_step(path, lines))


def has_step(path: Path, lines: Lines, step: int) -> bool:
    """Whether there is a row of training of that step."""
    places = range(len(lines))
    start = bisect_left(places, step, key=lambda line: _row(path, lines, line)["step"])
    end = bisect_right(places, step, key=lambda line: _row(path, lines, line)["step"])
    return any(_is_of_training(_row(path, lines, line)) for line in places[start:end])


def _last_step(path: Path, lines: Lines) -> int | None:
    rows = (_row(path, lines, line) for line in reversed(range(len(lines))))
    return next((row["step"] for row in rows if _is_of_training(row)), None)


def _is_of_training(row: dict[str, Any]) -> bool:
    return any(name != "step" and not is_held_out(name) for name in row)


def _row(path: Path, lines: Lines, line: int) -> dict[str, Any]:
    try:
        row = json.loads(read_bytes(path, *lines.span(line)))
    except ValueError as error:
        raise InputError(f"line {line + 1} of {path.name} is not JSON ({error})") from error
    if not is_metrics_row(row):
        raise InputError(f"line {line + 1} of {path.name} is not the metrics of a step")
    return dict(row)
