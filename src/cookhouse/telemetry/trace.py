"""trace.json: spans in Chrome's trace format, which ui.perfetto.dev opens."""

import json
import time
from pathlib import Path

from cookhouse.telemetry.record import Record, Span


class TraceSink:
    """Writes spans as they end, behind those that the file has already.

    The array is never closed, which the format allows, so a killed run has a trace too. Times are microseconds since
    the epoch: those of a resumed run follow those of the run before, on whichever machine.
    """

    def __init__(self, path: Path) -> None:
        self._num_spans = _cut_to_whole_spans(path)
        self._file = path.open("a", encoding="utf-8")
        if self._file.tell() == 0:
            self._file.write("[\n")
        self._epoch_seconds = time.time() - time.perf_counter()

    def write(self, record: Record) -> None:
        if not isinstance(record, Span):
            return
        self._num_spans += 1
        # Asynchronous begin and end: steps in flight overlap, which complete ("X") events on one thread may not.
        common = {"name": record.name, "cat": "stage", "id": self._num_spans, "pid": 1, "tid": 1}
        args = {"step": record.step, "error": record.error}
        begin = {**common, "ph": "b", "ts": self._microseconds(record.start_seconds), "args": args}
        end = {**common, "ph": "e", "ts": self._microseconds(record.end_seconds)}
        self._file.write(json.dumps(begin) + ",\n" + json.dumps(end) + ",\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _microseconds(self, seconds: float) -> float:
        return round((seconds + self._epoch_seconds) * 1e6, 3)


def _cut_to_whole_spans(path: Path) -> int:
    """Remove what a crash tore off at the end of a trace; the number of spans that are left, two lines each."""
    if not path.exists():
        return 0
    num_spans = 0
    with path.open("rb+") as file:
        if file.readline() != b"[\n":
            file.truncate(0)
            return 0
        while (file.readline() + file.readline()).count(b",\n") == 2:
            num_spans += 1
            whole = file.tell()
        file.truncate(whole if num_spans else len(b"[\n"))
    return num_spans
