"""Which sinks are asked for, and what one that cannot start says."""

import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.telemetry.sinks.collector import Collector

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.naming import OpenSet
from cookhouse.telemetry import (
    SINKS,
    Background,
    Event,
    NoopSink,
    Record,
    SinkBuilder,
    Telemetry,
    find_sink,
    sink_names,
    start_sink,
)
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


class _Keeping:
    def __init__(self) -> None:
        self.threads = {threading.get_ident()}
        self.names: list[str] = []
        self.is_closed = False

    def write(self, record: Record) -> None:
        assert isinstance(record, Event)
        if record.name == "break":
            raise OSError("no space")
        self.threads.add(threading.get_ident())
        self.names.append(record.name)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


@pytest.fixture
def kept() -> _Keeping:
    return _Keeping()


def _made(kept: _Keeping) -> Callable[[], _Keeping]:
    def make() -> _Keeping:
        kept.threads = {threading.get_ident()}
        return kept

    return make


def test_everything_happens_in_order_in_one_other_thread(kept: _Keeping) -> None:
    sink = Background("kept", _made(kept))
    names = [str(number) for number in range(500)]
    for name in names:
        sink.write(Event(name=name))
    sink.close()
    assert kept.names == names
    assert kept.is_closed
    assert len(kept.threads) == 1
    assert threading.get_ident() not in kept.threads


def test_what_a_sink_raised_is_raised_by_the_next_write(kept: _Keeping) -> None:
    # Catches a tool that has failed and is told of at the end of a run of days.
    sink = Background("kept", _made(kept))
    sink.write(Event(name="break"))
    sink._thread.join(60)
    with pytest.raises(OSError, match="no space"):
        sink.write(Event(name="c"))
    with pytest.raises(OSError, match="no space"):
        sink.close()
    assert kept.is_closed


@pytest.mark.parametrize("last", [[], ["c"]], ids=["at the end", "in the middle"])
def test_a_failure_is_said_once_and_what_came_before_is_kept(
    kept: _Keeping, caplog: pytest.LogCaptureFixture, last: list[str]
) -> None:
    heard = _Keeping()
    with Telemetry([heard, sink := Background("kept", _made(kept))]) as telemetry:
        for name in ["a", "b"]:
            telemetry.event(name)
        sink.write(Event(name="break"))
        sink._thread.join(60)
        for name in last:
            telemetry.event(name)
    assert kept.names == ["a", "b"]
    assert kept.is_closed
    assert [name for name in heard.names if name == "telemetry.failed"] == ["telemetry.failed"]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1
    assert "telemetry sink kept failed" in caplog.text


def test_a_sink_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Hanging(_Keeping):
        def close(self) -> None:
            release.wait(60)

    heard = _Keeping()
    with Telemetry([heard, sink := Background("hanging", Hanging, close_seconds=0.05)]) as telemetry:
        telemetry.event("a")
    assert heard.names == ["a", "telemetry.failed"]
    assert "has not finished after 0.05 s" in caplog.text
    release.set()
    sink._thread.join(60)


def test_a_sink_that_starts_too_late_is_closed() -> None:
    release, closed = threading.Event(), threading.Event()

    class Late(_Keeping):
        def close(self) -> None:
            closed.set()

    def make() -> _Keeping:
        release.wait(60)
        return Late()

    with pytest.raises(TimeoutError, match=r"has not started after 0\.05 s"):
        Background("hanging", make, start_seconds=0.05)
    release.set()
    assert closed.wait(10.0)


def test_a_sink_that_is_far_behind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a queue that grows without bound, and a write that waits for its place in it.
    monkeypatch.setattr(named, "MAX_WAITING", 3)
    release = threading.Event()

    class Slow(_Keeping):
        def write(self, record: Record) -> None:
            release.wait(60)
            super().write(record)

    sink = Background("slow", Slow, close_seconds=0.05)
    for _ in range(3):
        sink.write(Event(name="a"))
    with pytest.raises(queue.Full):  # the thread may hold one more
        any(sink.write(Event(name="a")) for _ in range(2))  # type: ignore[func-returns-value]
    with pytest.raises(TimeoutError, match="has not finished"):
        sink.close()
    release.set()


def test_a_library_that_exits_ends_neither_the_process_nor_the_thread_unseen() -> None:
    def make() -> _Keeping:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match=r"it ended its thread: SystemExit\(3\)"):
        Background("exiting", make)
