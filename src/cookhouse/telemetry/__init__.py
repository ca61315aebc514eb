"""Telemetry: what a run reports about itself, and where that goes."""

from cookhouse.telemetry.console import make_console, say, say_command, say_fact, tell, wrapped
from cookhouse.telemetry.declared import check_metric, declare_metric, declared_of, find_metric, is_held_out, ranked
from cookhouse.telemetry.durations import span
from cookhouse.telemetry.headline import Headline, choose_headline
from cookhouse.telemetry.intervals import (
    ERRORS_IN_WORDS,
    Z95,
    error_text,
    measured_parts,
    measured_text,
    wilson_interval,
)
from cookhouse.telemetry.jsonl import (
    JsonlSink,
    cut_metrics,
    metrics_at,
    metrics_line,
    metrics_row,
    read_metrics,
    strict_json,
)
from cookhouse.telemetry.logged import LoggedEvent, read_event
from cookhouse.telemetry.logs import LogSink, log_file, logs_of
from cookhouse.telemetry.main_metrics import is_detail
from cookhouse.telemetry.metric import CHOSEN, COMPANIONS, Direction, Metric, as_float, number
from cookhouse.telemetry.notes import ResultNote, by_weight, in_view
from cookhouse.telemetry.record import Event, MetricsRow, Record, Sink, Span, Values, split_values
from cookhouse.telemetry.scopes import (
    Entry,
    Note,
    Recording,
    Scope,
    Table,
    entries_from_json,
    entries_to_json,
    note,
    scope,
    table,
)
from cookhouse.telemetry.sinks import (
    SINKS,
    Background,
    NoopSink,
    RecordFileSink,
    SinkBuilder,
    check_sink,
    find_sink,
    sink_names,
    start_sink,
)
from cookhouse.telemetry.steps import after_step, last_step_of, step_number
from cookhouse.telemetry.telemetry import Relay, Telemetry
from cookhouse.telemetry.terminal import TerminalSink
from cookhouse.telemetry.trace import TraceSink

__all__ = [
    "CHOSEN",
    "COMPANIONS",
    "ERRORS_IN_WORDS",
    "SINKS",
    "Z95",
    "Background",
    "Direction",
    "Entry",
    "Event",
    "Headline",
    "JsonlSink",
    "LogSink",
    "LoggedEvent",
    "Metric",
    "MetricsRow",
    "NoopSink",
    "Note",
    "Record",
    "RecordFileSink",
    "Recording",
    "Relay",
    "ResultNote",
    "Scope",
    "Sink",
    "SinkBuilder",
    "Span",
    "Table",
    "Telemetry",
    "TerminalSink",
    "TraceSink",
    "Values",
    "after_step",
    "as_float",
    "by_weight",
    "check_metric",
    "check_sink",
    "choose_headline",
    "cut_metrics",
    "declare_metric",
    "declared_of",
    "entries_from_json",
    "entries_to_json",
    "error_text",
    "find_metric",
    "find_sink",
    "in_view",
    "is_detail",
    "is_held_out",
    "last_step_of",
    "log_file",
    "logs_of",
    "make_console",
    "measured_parts",
    "measured_text",
    "metrics_at",
    "metrics_line",
    "metrics_row",
    "note",
    "number",
    "ranked",
    "read_event",
    "read_metrics",
    "say",
    "say_command",
    "say_fact",
    "scope",
    "sink_names",
    "span",
    "split_values",
    "start_sink",
    "step_number",
    "strict_json",
    "table",
    "tell",
    "wilson_interval",
    "wrapped",
]
