"""Hands what a run reports to its sinks, and keeps a broken sink from breaking the run."""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, TypeVar

from cookhouse.telemetry import events
from cookhouse.telemetry.main_metrics import MetricChoice, main_metrics
from cookhouse.telemetry.notes import by_weight
from cookhouse.telemetry.record import Event, MetricsRow, Record, Sink, Span, Telling, Values

V = TypeVar("V", float, float | str)

logger = logging.getLogger(__name__)


class Relay:
    """A sink that hands records on to another run's telemetry, whose sinks stay open."""

    def __init__(self, telemetry: "Telemetry") -> None:
        self._telemetry = telemetry

    def write(self, record: Record) -> None:
        self._telemetry.send(record)

    def close(self) -> None:
        """Nothing is held."""


class Telemetry:
    """Every sink sees every record, in the order reported. Used as a context, it closes its sinks at the end."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self._choice: MetricChoice = "all"
        self._named: Collection[str] = ()

    def choose(self, choice: MetricChoice, named: Collection[str] = ()) -> None:
        """Send all metrics from here on, or the main ones and those that are `named`; before, all are sent."""
        self._choice, self._named = choice, named

    def chosen(self, values: Mapping[str, V]) -> Mapping[str, V]:
        """The ones of some metrics that are sent."""
        return values if self._choice == "all" else main_metrics(values, self._named)

    def add(self, sink: Sink) -> None:
        """Send to one more sink from here on."""
        self._sinks.append(sink)

    def has(self, kind: type[Sink]) -> bool:
        """True if a sink of a class is among those sent to."""
        return any(isinstance(sink, kind) for sink in self._sinks)

    def tell(self, text: str) -> bool:
        """Say something to the person at the terminal that no file and no tool should keep; whether there is one. From
        any thread.
        """
        telling = [sink for sink in self._sinks if isinstance(sink, Telling)]
        for sink in telling:
            sink.tell(text)
        return bool(telling)

    def event(
        self, name: str, *, step: int | None = None, metrics: Mapping[str, float] | None = None, **text: str
    ) -> None:
        """Report that something happened; sinks get the chosen ones of the metrics."""
        self.send(Event(name=name, step=step, metrics=dict(self.chosen(metrics or {})), text=text))

    def notes(self, notes: Iterable[str]) -> None:
        """Report notes for a person, each once, those that change the result first."""
        for note in by_weight(notes):
            self.event(events.DATA_NOTE, text=note)

    def metrics(self, step: int, metrics: Values) -> None:
        """Report all metrics of a step, once; sinks get the chosen ones."""
        self.send(MetricsRow(step=step, metrics=dict(self.chosen(metrics))))

    @contextmanager
    def span(self, name: str, *, step: int | None = None) -> Iterator[None]:
        """Report how long the body took, and the error that ended it, if one did."""
        start = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self.finish_span(name, start, step=step, error=type(error).__name__)
            raise
        self.finish_span(name, start, step=step)

    def finish_span(
        self, name: str, start_seconds: float, *, step: int | None = None, error: str | None = None
    ) -> None:
        """Report something that began at `start_seconds` of `time.perf_counter` and ends now."""
        self.send(Span(name=name, start_seconds=start_seconds, end_seconds=time.perf_counter(), step=step, error=error))

    def close(self) -> None:
        """Close every sink, the last one first; one that fails is reported to those still open, which it leaves so."""
        while self._sinks:
            sink = self._sinks.pop()
            try:
                sink.close()
            except Exception as error:
                self._report(sink, error, "failed to close")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(self, record: Record) -> None:
        """Hand a record to every sink."""
        for sink in list(self._sinks):
            try:
                sink.write(record)
            except Exception as error:
                self._drop(sink, error)

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        with suppress(Exception):  # what it has taken so far is worth keeping; that it is broken is said below
            sink.close()
        self._report(sink, error, "failed and is off for the rest of the run")

    def _report(self, sink: Sink, error: Exception, what: str) -> None:
        name = getattr(sink, "name", type(sink).__name__)
        logger.warning("telemetry sink %s %s", name, what, exc_info=error)
        self.event(events.TELEMETRY_FAILED, sink=name, what=what, error=f"{type(error).__name__}: {error}")
