"""trace.json: spans in Chrome's trace format, which ui.perfetto.dev opens."""

import json
from pathlib import Path

from cookhouse.telemetry.record import Record, Span


class TraceSink:
    """Writes spans as they end. The array is never closed, which the format allows, so a killed run has a trace too."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._file.write("[\n")
        self._num_spans = 0

    def write(self, record: Record) -> None:
        if not isinstance(record, Span):
            return
        self._num_spans += 1
        # Asynchronous begin and end: steps in flight overlap, which complete ("X") events on one thread may not.
        common = {"name": record.name, "cat": "stage", "id": self._num_spans, "pid": 1, "tid": 1}
        args = {"step": record.step, "error": record.error}
        begin = {**common, "ph": "b", "ts": record.start_seconds * 1e6, "args": args}
        end = {**common, "ph": "e", "ts": record.end_seconds * 1e6}
        self._file.write(json.dumps(begin) + ",\n" + json.dumps(end) + ",\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
