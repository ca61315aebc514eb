import json
from pathlib import Path

from cookhouse.telemetry import Span, TraceSink


def test_spans_that_overlap_are_pairs_of_their_own(tmp_path: Path) -> None:
    sink = TraceSink(tmp_path / "trace.json")
    sink.write(Span(name="a", start_seconds=1.0, end_seconds=3.0, step=0))
    sink.write(Span(name="a", start_seconds=2.0, end_seconds=4.0, step=1))
    text = (tmp_path / "trace.json").read_text()  # before it is closed: what a killed run leaves
    sink.close()
    events = json.loads(text.rstrip(",\n") + "]")
    assert [(event["ph"], event["id"], event["ts"]) for event in events] == [
        ("b", 1, 1e6),
        ("e", 1, 3e6),
        ("b", 2, 2e6),
        ("e", 2, 4e6),
    ]
