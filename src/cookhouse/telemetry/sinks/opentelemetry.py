"""OpenTelemetry, by its own SDK: spans, events and metrics to the collector of OTEL_EXPORTER_OTLP_ENDPOINT.

A run is a trace: a span for the run, and in it one for each stage. An event is a log record of its name, with its
fields as the body; a metrics row is one too, named `metrics`, and sets gauges, of which a collector sees the latest.
"""

import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from cookhouse.errors import InputError, ServiceError
from cookhouse.extras import install_command
from cookhouse.telemetry import events
from cookhouse.telemetry.record import Event, MetricsRow, Record, Span, Values
from cookhouse.telemetry.sinks.fitted_names import opentelemetry_name
from cookhouse.telemetry.sinks.named import CheckedSink
from cookhouse.telemetry.sinks.tracked import described, run_name

METRICS_EVENT = "metrics"
_FLUSH_SECONDS = 1.0
_TRANSPORTS = {"http/protobuf": "http", "grpc": "grpc"}


class OpenTelemetrySink:
    """Exports what has come at most every second, and waits for the collector to take it.

    Raises:
        InputError: OTEL_EXPORTER_OTLP_PROTOCOL is none that there is.
        ServiceError: the collector did not take a request, within OTEL_EXPORTER_OTLP_TIMEOUT.
    """

    def __init__(self, run: str, config: Mapping[str, Any]) -> None:
        # What has come is kept in memory and exported here, where a failure is seen; OTel's own processors hide it.
        self._spans, self._logs, self._metrics = (
            InMemorySpanExporter(),
            InMemoryLogRecordExporter(),
            InMemoryMetricReader(),
        )
        self._exporters = _exporters()
        resource = Resource.create({"cookhouse.run": run, **_service_name()})
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        meters = MeterProvider([self._metrics], resource=resource, shutdown_on_exit=False)
        self._tracer, self._logger = tracers.get_tracer("cookhouse"), loggers.get_logger("cookhouse")
        self._meter = meters.get_meter("cookhouse")
        self._gauges: dict[str, Any] = {}
        self._flush()  # of nothing: it shows whether there is a collector
        self._epoch_seconds = time.time() - time.perf_counter()
        self._status = "errored"  # unless the run comes to say otherwise
        self._root = self._tracer.start_span("run", attributes=_attributes(config))

    def write(self, record: Record) -> None:
        match record:
            case Event():
                self._log(record.name, record.step, {**record.metrics, **record.text})
                if record.name == events.RUN_END:
                    self._status = record.text["status"]
            case MetricsRow():
                self._log(METRICS_EVENT, record.step, record.metrics)
                for name, value in record.metrics.items():
                    if not isinstance(value, str):
                        self._gauge(name).set(value)
            case Span():
                self._span(record)
        if time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self._flush()

    def close(self) -> None:
        self._root.set_status(_status(None if self._status == "success" else self._status))
        self._root.end()
        try:
            self._flush()
        finally:
            for exporter in self._exporters:
                exporter.shutdown()

    def _span(self, record: Span) -> None:
        span = self._tracer.start_span(
            record.name,
            context=set_span_in_context(self._root),
            attributes={} if record.step is None else {"step": record.step},
            start_time=self._nanoseconds(record.start_seconds),
        )
        span.set_status(_status(record.error))
        span.end(self._nanoseconds(record.end_seconds))

    def _log(self, name: str, step: int | None, fields: Values) -> None:
        now = time.time_ns()
        self._logger.emit(
            LogRecord(
                timestamp=now,
                observed_timestamp=now,
                context=set_span_in_context(self._root),
                body=dict(fields),
                attributes={} if step is None else {"step": step},
                event_name=name,
            )
        )

    def _gauge(self, name: str) -> Any:
        if name not in self._gauges:
            self._gauges[name] = self._meter.create_gauge(opentelemetry_name(name))
        return self._gauges[name]

    def _flush(self) -> None:
        batches = (
            self._spans.get_finished_spans(),
            self._logs.get_finished_logs(),
            self._metrics.get_metrics_data() or MetricsData([]),
        )
        self._spans.clear()
        self._logs.clear()
        for exporter, batch in zip(self._exporters, batches, strict=True):
            result = exporter.export(batch)
            if result.name != "SUCCESS":
                raise ServiceError(
                    f"the collector did not take what {type(exporter).__name__} sent; see that one runs at "
                    "OTEL_EXPORTER_OTLP_ENDPOINT"
                )
        self._flushed_at = time.monotonic()

    def _nanoseconds(self, seconds: float) -> int:
        return int((seconds + self._epoch_seconds) * 1e9)


def make_sink(folder: Path, settings: Mapping[str, Any]) -> OpenTelemetrySink:
    """The sink `opentelemetry`. Raises as the sink does."""
    return OpenTelemetrySink(run_name(folder, settings), described(folder, settings))


def _exporters() -> Sequence[Any]:
    """Of spans, logs and metrics. Each reads its own environment variables, such as endpoint and headers."""
    kinds = (
        ("TRACES", "trace_exporter", "OTLPSpanExporter"),
        ("LOGS", "_log_exporter", "OTLPLogExporter"),
        ("METRICS", "metric_exporter", "OTLPMetricExporter"),
    )
    return [getattr(_exporter_module(_transport(signal), module), name)() for signal, module, name in kinds]


def _exporter_module(transport: str, module: str) -> Any:
    try:
        return import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{module}")
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{transport}"
        raise InputError(
            f"it needs the package {package}; install that beside the extra: {install_command('opentelemetry')}"
        ) from error


def _transport(signal: str) -> str:
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((value for name in variables if (value := os.environ.get(name))), "http/protobuf")
    if protocol not in _TRANSPORTS:
        raise InputError(f"{variables[1]} is {protocol!r}; it must be {' or '.join(_TRANSPORTS)}")
    return _TRANSPORTS[protocol]


def _service_name() -> dict[str, str]:
    given = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if given else {"service.name": "cookhouse"}


def _attributes(config: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in config.items()
    }
    return {f"cookhouse.{name}": value for name, value in plain.items()}


def _status(error: str | None) -> Any:
    return Status(StatusCode.OK) if error is None else Status(StatusCode.ERROR, error)


def _check_exporters() -> None:
    for exporter in _exporters():
        exporter.shutdown()


SINK = CheckedSink(make=make_sink, check=_check_exporters)
