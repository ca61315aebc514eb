"""Sinks by name: those of other tools, each behind an extra of its name, and those of the user's own."""

from cookhouse.telemetry.sinks.named import (
    SINKS,
    Background,
    CheckedSink,
    SinkBuilder,
    check_sink,
    find_sink,
    sink_names,
    start_sink,
)
from cookhouse.telemetry.sinks.noop import NoopSink
from cookhouse.telemetry.sinks.record_file import RecordFileSink

__all__ = [
    "SINKS",
    "Background",
    "CheckedSink",
    "NoopSink",
    "RecordFileSink",
    "SinkBuilder",
    "check_sink",
    "find_sink",
    "sink_names",
    "start_sink",
]
