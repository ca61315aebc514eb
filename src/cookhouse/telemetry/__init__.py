"""Telemetry: what a run reports about itself, and where that goes."""

from cookhouse.telemetry.record import Event, MetricsRow, Record, Sink, Span

__all__ = ["Event", "MetricsRow", "Record", "Sink", "Span"]
