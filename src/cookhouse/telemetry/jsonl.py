"""metrics.jsonl: one JSON object per step, and reading and cutting it for a resume."""

import json
from pathlib import Path
from typing import Any

from cookhouse.telemetry.record import MetricsRow, Record


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


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file, none if it does not exist; a torn last line is left out."""
    if not path.exists():
        return []
    return [row for _, row in _complete_rows(path)]


def cut_metrics(path: Path, step: int) -> None:
    """Drop the rows of `step` and later, and a torn last line, so that a resumed run writes each step once."""
    if not path.exists():
        return
    kept = "".join(line for line, row in _complete_rows(path) if row["step"] < step)
    replacement = path.with_name(path.name + ".new")
    replacement.write_text(kept, encoding="utf-8")
    replacement.replace(path)


def _complete_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [(line, json.loads(line)) for line in lines if line.endswith("\n")]
