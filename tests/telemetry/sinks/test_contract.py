"""Every sink passes the suite of sinks, and the suite can fail."""

import io
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.telemetry.sinks.collector import Collector, attributes, plain
from tests.telemetry.sinks.readers import Row, mlflow_rows, tensorboard_rows, trackio_rows, wandb_rows

from cookhouse.telemetry import (
    JsonlSink,
    LogSink,
    MetricsRow,
    Record,
    Relay,
    Sink,
    Telemetry,
    TerminalSink,
    TraceSink,
    read_metrics,
    start_sink,
)
from cookhouse.testing import SinkContract, failures_of

Rows = Callable[[Path], Sequence[Row] | None]


class _Suite(SinkContract):
    """Over sinks that are made from a folder, and read back from it."""

    def __init__(self, make: Callable[[Path], Sink], rows: Rows | None = None) -> None:
        self._make, self._rows = make, rows or (lambda _: None)
        self._folders: list[tuple[Sink, Path]] = []

    def make(self) -> Sink:
        folder = self.folder()
        self._folders.append((self._make(folder), folder))
        return self._folders[-1][0]

    def rows(self, sink: Sink) -> Sequence[Row] | None:
        return next(self._rows(folder) for made, folder in self._folders if made is sink)


def _records(folder: Path) -> Sequence[Row]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [{"step": line["step"], **line["metrics"]} for line in lines if line["kind"] == "metrics"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("jsonl", _records),
        ("mlflow", mlflow_rows),
        ("noop", None),
        ("terminal", None),
        ("trackio", trackio_rows),
        ("wandb", wandb_rows),
    ],
)
def test_sinks_by_name(name: str, rows: Rows | None) -> None:
    assert failures_of(_Suite(lambda folder: start_sink(name, folder, {"seed": 0}), rows)) == {}


def test_tensorboard() -> None:
    suite = _Suite(lambda folder: start_sink("tensorboard", folder, {}), tensorboard_rows)
    assert set(failures_of(suite)) == {"test_keeps_rows"}, "it has single precision"
    suite.single_precision = True
    assert failures_of(suite) == {}


def test_opentelemetry(collector: Collector) -> None:
    def rows(folder: Path) -> Sequence[Row]:
        logs = [log for log in collector.logs(folder.name) if log.event_name == "metrics"]
        return [attributes(log.attributes) | plain(log.body) for log in logs]

    assert failures_of(_Suite(lambda folder: start_sink("opentelemetry", folder, {}), rows)) == {}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_terminal(is_terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    assert failures_of(_Suite(lambda _: TerminalSink(console))) == {}


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda folder: JsonlSink(folder / "metrics.jsonl"), lambda folder: read_metrics(folder / "metrics.jsonl")),
        (lambda folder: TraceSink(folder / "trace.json"), None),
        (lambda _: LogSink(), None),
        (lambda _: Relay(Telemetry([])), None),
    ],
    ids=["metrics.jsonl", "trace.json", "logs.log", "relay"],
)
def test_sinks_of_every_run(make: Callable[[Path], Sink], rows: Rows | None) -> None:
    assert failures_of(_Suite(make, rows)) == {}


class _Kept:
    """A sink as it should be, and the base of those that are not."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "rows.json"
        self._rows: list[Row] = []

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            self._rows.append({"step": record.step, **record.metrics})

    def close(self) -> None:
        self._path.write_text(json.dumps(self._rows))


class _NumbersOnly(_Kept):
    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            numbers = {name: value for name, value in record.metrics.items() if not isinstance(value, str)}
            super().write(MetricsRow(step=record.step, metrics=numbers))


class _SinglePrecision(_Kept):
    def write(self, record: Record) -> None:
        super().write(record)
        for row in self._rows:
            row |= {name: float(f"{value:.7g}") for name, value in row.items() if isinstance(value, float)}


class _Counting(_Kept):
    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            super().write(MetricsRow(step=len(self._rows), metrics=record.metrics))


class _NoSpans(_Kept):
    def write(self, record: Record) -> None:
        if not isinstance(record, MetricsRow):
            assert record.step is not None
        super().write(record)


class _Renaming(_Kept):
    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            record.metrics["renamed"] = 1.0  # type: ignore[index]


class _Shared(_Kept):
    shared: list[Row] = []  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._rows = self.shared


class _FiniteOnly(_Kept):
    def close(self) -> None:
        self._path.write_text(json.dumps(self._rows, allow_nan=False))


class _LastRowLost(_Kept):
    def close(self) -> None:
        self._rows = self._rows[:-1]
        super().close()


class _ByThread(_Kept):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._thread = threading.get_ident()

    def write(self, record: Record) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("made in another thread")
        super().write(record)


def _rows(folder: Path) -> Sequence[Row]:
    read: Sequence[Row] = json.loads((folder / "rows.json").read_text())
    return read


@pytest.mark.parametrize(
    ("make", "broken"),
    [
        (_Kept, set()),
        (_NumbersOnly, {"keeps_rows"}),
        (_SinglePrecision, {"keeps_rows"}),
        (_Counting, {"keeps_rows"}),
        (_NoSpans, {"takes_every_kind_of_record", "may_be_written_to_in_another_thread"}),
        (_Renaming, {"leaves_records_as_they_are", "keeps_rows", "two_at_once_do_not_mix"}),
        (_Shared, {"two_at_once_do_not_mix", "keeps_rows"}),
        (_FiniteOnly, {"takes_numbers_that_are_not_finite"}),
        (_LastRowLost, {"keeps_rows", "two_at_once_do_not_mix"}),
        (_ByThread, {"may_be_written_to_in_another_thread"}),
    ],
)
def test_a_broken_sink_is_caught_promise_by_promise(make: Callable[[Path], Sink], broken: set[str]) -> None:
    assert set(failures_of(_Suite(make, _rows))) == {f"test_{name}" for name in broken}


def test_what_fails_is_said_in_words() -> None:
    failures: Any = failures_of(_Suite(_NumbersOnly, _rows))
    assert "every row is kept with its step, its numbers and its text" in failures["test_keeps_rows"]
