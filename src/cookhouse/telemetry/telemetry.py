"""Hands what a run reports to its sinks, and keeps a broken sink from breaking the run."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from cookhouse.telemetry.record import Event, MetricsRow, Record, Sink, Span

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

    def add(self, sink: Sink) -> None:
        """Send to one more sink from here on."""
        self._sinks.append(sink)

    def event(
        self, name: str, *, step: int | None = None, metrics: Mapping[str, float] | None = None, **text: str
    ) -> None:
        """Report that something happened."""
        self.send(Event(name=name, step=step, metrics=dict(metrics or {}), text=text))

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report all metrics of a step, once."""
        self.send(MetricsRow(step=step, metrics=dict(metrics)))

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
        """Close every sink; one that fails is reported and does not keep the others open."""
        while self._sinks:
            _close(self._sinks.pop())

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
        _close(sink, logging.DEBUG)  # what it has taken so far is worth keeping; that it is broken is said below
        name = type(sink).__name__
        logger.warning("telemetry sink %s failed and is off for the rest of the run", name, exc_info=error)
        self.event("telemetry.failed", sink=name, error=f"{type(error).__name__}: {error}")


def _close(sink: Sink, level: int = logging.WARNING) -> None:
    try:
        sink.close()
    except Exception:
        logger.log(level, "telemetry sink %s failed to close", type(sink).__name__, exc_info=True)
