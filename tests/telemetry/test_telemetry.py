import logging

import pytest

from cookhouse.telemetry import Event, Record, Span, Telemetry


class Keeping:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.is_closed = False

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.is_closed = True


class Failing:
    def __init__(self) -> None:
        self.num_writes = 0

    def write(self, record: Record) -> None:  # noqa: ARG002
        self.num_writes += 1
        raise OSError("no space")

    def close(self) -> None:
        raise OSError("no space to close")


def test_failing_sink_is_reported_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    keeping, failing = Keeping(), Failing()
    with Telemetry([failing, keeping]) as telemetry:
        telemetry.event("a")
        telemetry.metrics(0, {"train/loss": 1.0})
    assert failing.num_writes == 1
    events = [record for record in keeping.records if isinstance(record, Event)]
    assert sorted(event.name for event in events) == ["a", "telemetry.failed"]
    assert [event.text["sink"] for event in events if event.text] == ["Failing"]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1
    assert keeping.is_closed


def test_sink_that_fails_to_close_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    keeping = Keeping()
    with Telemetry([keeping, Failing()]):
        pass
    assert keeping.is_closed
    assert "failed to close" in caplog.text


def test_span_tells_its_error() -> None:
    keeping = Keeping()
    telemetry = Telemetry([keeping])
    with telemetry.span("good", step=3):
        pass
    with pytest.raises(ValueError, match="x"), telemetry.span("bad"):
        raise ValueError("x")
    good, bad = (record for record in keeping.records if isinstance(record, Span))
    assert (good.name, good.step, good.error) == ("good", 3, None)
    assert (bad.name, bad.error) == ("bad", "ValueError")
    assert good.end_seconds >= good.start_seconds
