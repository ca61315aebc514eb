"""Which sinks are asked for, and what one that cannot start says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.telemetry.sinks.collector import Collector

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.naming import OpenSet
from cookhouse.telemetry import SINKS, NoopSink, SinkBuilder, find_sink, sink_names, start_sink
from cookhouse.telemetry.sinks import named


@pytest.mark.parametrize(
    ("sinks", "project", "names"),
    [
        ("", None, []),
        ("wandb, trackio,wandb", None, ["wandb", "trackio"]),
        ("", "p", ["wandb"]),
        ("tensorboard", "p", ["tensorboard", "wandb"]),
        ("mlflow", "p", ["mlflow"]),
        ("wandb", "p", ["wandb"]),
    ],
)
def test_a_project_alone_means_wandb(sinks: str, project: str | None, names: list[str]) -> None:
    assert sink_names(sinks, project) == names


def test_an_unknown_sink_says_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown sink 'wanb'.*wandb"):
        find_sink("wanb")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("mlflow", "mlflow"),
        ("opentelemetry", "opentelemetry.sdk"),
        ("tensorboard", "tensorboard"),
        ("trackio", "trackio"),
        ("wandb", "wandb"),
    ],
)
def test_a_missing_library_is_said_with_its_extra(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a library that is loaded before it is asked for, too: the module is imported anew, without it.
    for module in list(sys.modules):
        if module.startswith(f"{library}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"cookhouse.telemetry.sinks.{name}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"sink {name} needs the library {library}.*: .* install .*\[{name}\]"):
        find_sink(name)


def test_every_built_in_sink_has_its_extra() -> None:
    import tomllib

    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())["project"]
    assert set(SINKS.builtin) - {"jsonl", "noop", "terminal"} <= set(project["optional-dependencies"])


def test_wandb_without_a_login_refuses_and_never_asks(tmp_path: Path) -> None:
    # In a process of its own: W&B reads its environment once.
    program = (
        "from pathlib import Path\n"
        "from cookhouse.telemetry import start_sink\n"
        f"start_sink('wandb', Path({str(tmp_path)!r}), {{}})"
    )
    known = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment = known | {"WANDB_MODE": "online", "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "sink wandb cannot start: W&B has no login; run `wandb login`" in done.stderr


def test_no_collector_refuses(tmp_path: Path, collector: Collector) -> None:
    collector.status = 500
    with pytest.raises(
        InputError, match=r"sink opentelemetry cannot start: .*the collector did not take what OTLPSpan"
    ):
        start_sink("opentelemetry", tmp_path, {})


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("http/json", "must be http/protobuf or grpc"),
        ("grpc", "needs the package opentelemetry-exporter-otlp-proto-grpc"),
    ],
)
def test_a_protocol_that_is_not_there_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with pytest.raises(InputError, match=reason):
        start_sink("opentelemetry", tmp_path, {})


def test_mlflow_without_a_server_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=r"sink mlflow cannot start: MlflowException: .*127\.0\.0\.1"):
        start_sink("mlflow", tmp_path, {})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "a"}'])
def test_a_damaged_record_of_the_tool_s_run_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "trackio.json").write_text(text)
    with pytest.raises(InputError, match=r"sinks/trackio\.json does not name a run of trackio .*; remove it"):
        start_sink("trackio", tmp_path, {})


def test_a_sink_of_a_user_s_own_stands_beside_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh: OpenSet[SinkBuilder] = OpenSet(
        kind="sink", group="cookhouse.sinks", builtin=SINKS.builtin, check=SINKS.check, wants=SINKS.wants
    )
    monkeypatch.setattr(named, "SINKS", fresh)
    mine = NoopSink()
    fresh.register("mine", lambda folder, settings: mine)  # noqa: ARG005
    assert find_sink("mine")(Path("a"), {}) is mine
    with pytest.raises(InputError, match="there is a sink 'wandb' already"):
        fresh.register("wandb", lambda folder, settings: mine)  # noqa: ARG005
