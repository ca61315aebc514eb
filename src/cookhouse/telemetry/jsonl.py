"""metrics.jsonl: one JSON object per step, and reading and cutting it for a resume."""

import json
from pathlib import Path
from typing import Any, TypeGuard

from cookhouse.errors import InputError
from cookhouse.telemetry.record import MetricsRow, Record, Values

_MAX_STEP = 1 << 53
"""Beyond it steps are no numbers that every program can hold."""


class JsonlSink:
    """Appends each metrics row as one line with key `step`; a line is on its way to disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            self._file.write(json.dumps({"step": record.step, **record.metrics}) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, none if it does not exist; a torn last line is left out.

    Raises:
        InputError: some other line is not a row.
    """
    if not path.exists():
        return []
    return [row for _, row in _complete_rows(path)]


def metrics_at(path: Path, step: int) -> Values:
    """What was measured of the weights after `step` steps, and of the step that they took next. Errors as
    `read_metrics`.
    """
    rows = [row for row in read_metrics(path) if row["step"] == step]
    return {name: value for row in rows for name, value in row.items() if name != "step"}


def cut_metrics(path: Path, step: int) -> None:
    """Drop the rows of `step` and later, and a torn last line, so that a resumed run writes each step once.

    Errors as `read_metrics`.
    """
    if not path.exists():
        return
    kept = "".join(line for line, row in _complete_rows(path) if row["step"] < step)
    replacement = path.with_name(path.name + ".new")
    replacement.write_text(kept, encoding="utf-8")
    replacement.replace(path)


def _complete_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return [(line, _row(path, number, line)) for number, line in enumerate(lines, start=1) if line.endswith("\n")]


def is_metrics_row(row: object) -> TypeGuard[dict[str, Any]]:
    """Whether what a line of a metrics file holds is the metrics of a step."""
    return isinstance(row, dict) and isinstance(step := row.get("step"), int) and 0 <= step <= _MAX_STEP


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row: object = json.loads(line)
    except ValueError as error:
        raise InputError(
            f"{path}, line {number}, is not JSON ({error}); remove it, or choose another log_path"
        ) from error
    if not is_metrics_row(row):
        raise InputError(f"{path}, line {number}, is not the metrics of a step; remove it, or choose another log_path")
    return row
