"""Tools that write to the test's own folder, and reach nobody."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.telemetry.sinks.collector import Collector, collecting

# One place for all tests: Trackio reads it when it is imported, and MLflow takes seconds for a new database.
_SHARED = tempfile.mkdtemp(prefix="cookhouse-sinks-")
os.environ["TRACKIO_DIR"] = f"{_SHARED}/trackio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tools keep what is not in a run directory."""
    values = {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{_SHARED}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        yield collector
