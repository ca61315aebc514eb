"""metrics.jsonl: one JSON object per step, and reading and cutting it for a resume."""

import json
import math
from collections.abc import Mapping
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
            self._file.write(metrics_line({"step": record.step, **record.metrics}))
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def metrics_line(row: Mapping[str, Any]) -> str:
    """A row as a line of the file."""
    return strict_json(row) + "\n"


def strict_json(value: Any, **options: Any) -> str:
    """Plain values as JSON. Numbers that it does not have, NaN and infinite ones, become null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, none if it does not exist; a torn last line is left out.

    Raises:
        InputError: some other line is not a row.
    """
    if not path.exists():
        return []
    return [row for _, row in _complete_rows(path)]


def metrics_at(path: Path, step: int) -> Values:
    """Metrics of the weights after `step` steps, and of the step that they took next. Errors as
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


def metrics_row(line: str | bytes) -> dict[str, Any] | None:
    """The row that a line of a metrics file holds; what was no finite number is NaN. None: it is no row."""
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _with_nan(row) if _is_row(row) else None


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in row.items()}


def _is_row(row: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(row, dict) and isinstance(step := row.get("step"), int) and 0 <= step <= _MAX_STEP


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row: object = json.loads(line)
    except ValueError as error:
        raise InputError(
            f"{path}, line {number}, is not JSON ({error}); remove it, or choose another log_path"
        ) from error
    if not _is_row(row):
        raise InputError(f"{path}, line {number}, is not the metrics of a step; remove it, or choose another log_path")
    return _with_nan(row)
