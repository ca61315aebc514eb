import json
import time
from pathlib import Path
from typing import Any

import pytest

from cookhouse.telemetry import Span, TraceSink


def events_in(path: Path) -> list[dict[str, Any]]:
    """What Perfetto reads: an array that need not be closed."""
    events: list[dict[str, Any]] = json.loads(path.read_text().rstrip(",\n") + "]")
    return events


def test_spans_that_overlap_are_pairs_of_their_own(tmp_path: Path) -> None:
    sink = TraceSink(tmp_path / "trace.json")
    sink.write(Span(name="a", start_seconds=1.0, end_seconds=3.0, step=0))
    sink.write(Span(name="a", start_seconds=2.0, end_seconds=4.0, step=1))
    events = events_in(tmp_path / "trace.json")  # before it is closed: what a killed run leaves
    sink.close()
    start = events[0]["ts"]
    # A clock in microseconds since 1970 has a resolution of 0.25 in a double.
    assert [(event["ph"], event["id"], round(event["ts"] - start)) for event in events] == [
        ("b", 1, 0),
        ("e", 1, 2_000_000),
        ("b", 2, 1_000_000),
        ("e", 2, 3_000_000),
    ]


@pytest.mark.parametrize("torn", ["", '{"name": "a", "cat": "stage", "id": 2, "ph": "b"', '{"id": 2, "ph": "b"},\n{"i'])
def test_a_resumed_run_goes_on_in_the_trace_of_the_run_before(torn: str, tmp_path: Path) -> None:
    """Would catch a trace that is begun anew, times of two different clocks, and pairs that share a number."""
    path = tmp_path / "trace.json"
    for _ in range(2):
        sink = TraceSink(path)
        now = time.perf_counter()
        sink.write(Span(name="a", start_seconds=now, end_seconds=now + 1e-6))
        sink.close()
        with path.open("a") as file:
            file.write(torn)
    sink = TraceSink(path)
    sink.close()
    events = events_in(path)
    assert [(event["ph"], event["id"]) for event in events] == [("b", 1), ("e", 1), ("b", 2), ("e", 2)]
    assert events[0]["ts"] < events[2]["ts"]
    # An hour covers the slowest machine and catches a clock that counts since anything but 1970.
    assert abs(events[0]["ts"] / 1e6 - time.time()) < 3600


@pytest.mark.parametrize("content", ["", "[", "[\n"])
def test_a_trace_without_a_span_is_begun_again(content: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    sink = TraceSink(path)
    sink.write(Span(name="a", start_seconds=1.0, end_seconds=2.0))
    sink.close()
    assert [event["id"] for event in events_in(path)] == [1, 1]
