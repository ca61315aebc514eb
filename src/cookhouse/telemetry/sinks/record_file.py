"""records.jsonl: everything that a run reports, one JSON object a line."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cookhouse.telemetry.jsonl import strict_json
from cookhouse.telemetry.record import Event, MetricsRow, Record

RECORDS_FILE = "records.jsonl"


class RecordFileSink:
    """Appends each record with its `kind` (`event`, `metrics` or `span`) and the time it was written at, in seconds
    since the epoch. Spans have `seconds`, how long they took; those of a metrics row are `step` and `metrics`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        self._file.write(strict_json({"time": time.time(), **_as_json(record)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def make_sink(folder: Path, settings: Mapping[str, Any]) -> RecordFileSink:
    """The sink `jsonl`."""
    del settings
    return RecordFileSink(folder / RECORDS_FILE)


def _as_json(record: Record) -> dict[str, Any]:
    if isinstance(record, Event | MetricsRow):
        return {"kind": "event" if isinstance(record, Event) else "metrics", **asdict(record)}
    span = {"name": record.name, "step": record.step, "error": record.error}
    return {"kind": "span", **span, "seconds": record.end_seconds - record.start_seconds}
