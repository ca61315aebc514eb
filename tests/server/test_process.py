"""The server as a process: how it starts, and that it always ends."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.server.hosting import KEY
from tests.waiting import next_line
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.kernels.cpu import build
from cookhouse.server.__main__ import main
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.settings import ServiceOptions, Settings
from cookhouse.server.startup.command_line import CACHE_VARIABLE, DEVICE_VARIABLE, PRECISION_VARIABLE, SNAPSHOT_VARIABLE
from cookhouse.server.storage.store.store import Store

SCRIPT = Path(__file__).with_name("serve_fake.py")
LIMIT_SECONDS = 10.0
"""A long poll is held 25 s and the busy engine 60 s; an orderly end takes well under 3 s on an idle machine."""


@contextmanager
def process(arguments: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def ready(running: subprocess.Popen[str]) -> httpx.Client:
    url = next_line(running).strip()
    return httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": KEY}, timeout=30, trust_env=False)


def start_pass(http: httpx.Client) -> str:
    """Submit a pass, and return its request id."""
    session_id = http.post("/create_session", json={"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}).json()[
        "session_id"
    ]
    created = http.post(
        "/create_model", json={"session_id": session_id, "model_seq_id": 0, "base_model": "cookhouse/tiny"}
    ).json()
    message = pb.ForwardBackwardRequest(model_id=created["model_id"], seq_id=1, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = np.array([1, 2], dtype="<i4").tobytes()
    targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.array([2, 3], dtype="<i8").tobytes())
    datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
    return str(http.post("/forward_backward", content=message.SerializeToString()).json()["request_id"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stdin", "two signals"])
def test_a_busy_server_ends_at_once_when_told(tmp_path: Path, ending: str) -> None:
    """Would catch a process that outlives its client, or waits for its engine or for open long polls."""
    with process([str(SCRIPT), str(tmp_path), "--watch-stdin", "--busy"]) as running, ready(running) as http:
        request_id = start_pass(http)
        answers: list[int] = []

        def poll() -> None:
            answers.append(http.post("/retrieve_future", json={"request_id": request_id}).status_code)

        polling = threading.Thread(target=poll)
        polling.start()
        time.sleep(2.0)
        assert not answers
        started_at = time.monotonic()
        if ending == "stdin":
            assert running.stdin is not None
            running.stdin.close()
        else:
            running.send_signal(signal.SIGTERM)
            assert next_line(running).startswith("stopping")
            running.send_signal(signal.SIGTERM)
        assert running.wait(LIMIT_SECONDS) == 0
        assert time.monotonic() - started_at < LIMIT_SECONDS
        polling.join(5)
        assert answers == [408]


@pytest.mark.slow
@pytest.mark.parametrize("is_signaled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_was_accepted_is_answered_before_it_ends(tmp_path: Path, is_signaled: bool) -> None:
    """Would catch a supervisor's restart that loses a pass which its client was told is queued, and one that sends a
    signal to this process and to its holder, which then sends a word, so that the second ends it at once.
    """
    with process([str(SCRIPT), str(tmp_path), "--watch-stdin", "--slow"]) as running, ready(running) as http:
        request_id = start_pass(http)
        if is_signaled:
            running.send_signal(signal.SIGTERM)
            assert next_line(running).startswith("stopping")
        assert running.stdin is not None
        running.stdin.write("drain\n")
        running.stdin.flush()
        if not is_signaled:
            assert next_line(running).startswith("stopping")
        refused: list[int] = []
        new: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
        refusing = threading.Thread(target=lambda: refused.append(http.post("/create_session", json=new).status_code))
        refusing.start()
        assert http.post("/retrieve_future", json={"request_id": request_id}).status_code == 200
        assert running.wait(LIMIT_SECONDS) == 0
        refusing.join(5)
        assert refused == [503]


@pytest.mark.slow
@pytest.mark.parametrize(("more", "reason"), [(["--end-sessions"], "interrupted"), ([], None)])
def test_the_sessions_of_a_client_that_is_gone_end_with_stdin(
    tmp_path: Path, more: Sequence[str], reason: str | None
) -> None:
    """Would catch sessions of a killed run that are brought back for nobody, and those of other machines' clients that
    end because a terminal was closed; and a batch queue that signals all processes of a job, whose run then finds no
    server to save at.
    """
    with process([str(SCRIPT), str(tmp_path), "--watch-stdin", *more]) as running, ready(running) as http:
        if more:
            running.send_signal(signal.SIGTERM)
            running.send_signal(signal.SIGINT)
        start_pass(http)
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(LIMIT_SECONDS) == 0
    with closing(Store(tmp_path / "server.db")) as store:
        rows = store.sessions(KeyRing([KEY]).owner_of(KEY), limit=None, offset=0)
    assert [row.finish_reason for row in rows] == [reason]


@pytest.mark.slow
def test_a_server_without_stdin_runs_until_interrupted(tmp_path: Path) -> None:
    """Would catch a server in the background that ends for want of a stdin, a folder used twice, and a traceback."""
    with process([str(SCRIPT), str(tmp_path)]) as running, ready(running) as http:
        assert running.stdin is not None
        running.stdin.close()
        with process(["-m", "cookhouse.server", "--state-dir", str(tmp_path)]) as second:
            assert second.wait(30) == 2
            assert second.stderr is not None
            assert "in use by another server" in second.stderr.read()
        assert http.get("/healthz").json() == {"status": "ok"}
        running.send_signal(signal.SIGINT)
        assert running.wait(LIMIT_SECONDS) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_a_port_in_use_is_told_at_once(tmp_path: Path) -> None:
    """Would catch a traceback, or the seconds that torch takes to load before it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["-m", "cookhouse.server", "--port", str(port), "--state-dir", str(tmp_path / "state")]
        with process(arguments) as running:
            _, errors = running.communicate(timeout=30)
    assert running.returncode == 2
    assert errors == (
        f"error: port {port} on 127.0.0.1 is in use; stop the process that holds it, "
        "or pass another port (0 takes a free one)\n"
    )
    assert not (tmp_path / "state").exists()


def test_an_unusable_key_is_told(tmp_path: Path) -> None:
    """Would catch a server that starts with a key which no SDK would send."""
    arguments = ["-m", "cookhouse.server", "--state-dir", str(tmp_path)]
    with process(arguments, COOKHOUSE_API_KEYS="secret-key-0001") as running:
        output, errors = running.communicate(timeout=30)
    assert running.returncode == 2
    assert "'tml-'" in errors
    assert "secret-key" not in output + errors


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        (("cuda:1", "bfloat16"), (), ("cuda:1", "bfloat16")),
        (("cuda:1", "bfloat16"), ("--device", "cpu", "--precision", "float32"), ("cpu", "float32")),
        (("", ""), (), (None, None)),
    ],
)
def test_the_environment_chooses_what_the_command_line_does_not(
    environment: tuple[str, str],
    arguments: Sequence[str],
    expected: tuple[str | None, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Would catch a run that cannot choose for its own server, and an empty variable taken for a name."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        "cookhouse.server.__main__.run_server", lambda options, **rest: seen.update(rest, options=options)
    )
    for variable, value in zip((DEVICE_VARIABLE, PRECISION_VARIABLE), environment, strict=True):
        monkeypatch.setenv(variable, value)
    assert main(["--state-dir", str(tmp_path), *arguments]) == 0
    options = seen["make_worker"].engine_options
    assert (options["device"], options["precision"]) == expected


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [("url", (), "url"), ("url", ("--database", "another"), "another"), ("", (), None)],
)
def test_the_database_comes_from_either(
    environment: str, arguments: Sequence[str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a server that keeps its rows in its folder although it was told where else."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        "cookhouse.server.__main__.run_server", lambda options, **rest: seen.update(rest, options=options)
    )
    monkeypatch.setenv("COOKHOUSE_DATABASE", environment)
    assert main(["--state-dir", str(tmp_path), *arguments]) == 0
    assert seen["database"] == expected


def test_the_command_line_changes_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch minutes taken for seconds, and a default of the command line's own."""
    seen: list[Settings] = []
    monkeypatch.setattr("cookhouse.server.__main__.run_server", lambda options, **_: seen.append(options.settings))
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert main(["--state-dir", str(tmp_path), "--silent-minutes", "2", "--session-minutes", "0.5"]) == 0
    assert main(["--state-dir", str(tmp_path), "--drain-seconds", "5"]) == 0
    assert main(["--state-dir", str(tmp_path), "--journal", "rows"]) == 0
    assert main(["--state-dir", str(tmp_path), "--checkpoints", "s3://bucket/here"]) == 0
    hosted = ["--state-dir", str(tmp_path), "--as-hosted"]
    assert main(hosted) == 0
    assert main([*hosted, "--max-samples", "7", "--max-samplers", "3"]) == 0
    assert seen[5:] == [
        Settings(as_hosted=True, max_queued_samples=2000),
        Settings(as_hosted=True, max_queued_samples=7, max_samplers=3),
    ]
    assert seen[:2] == [Settings(), Settings(silent_seconds=120.0, session_seconds=30.0)]
    assert seen[2:5] == [
        Settings(drain_seconds=5.0),
        Settings(journal="rows"),
        Settings(checkpoints="s3://bucket/here"),
    ]


def test_a_loss_of_ones_own_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch an objective that is taken for the hosted service's, and an option that is not handed on."""
    seen: list[Settings] = []
    monkeypatch.setattr("cookhouse.server.__main__.run_server", lambda options, **_: seen.append(options.settings))
    assert main(["--state-dir", str(tmp_path), "--stable-reinforce", "own"]) == 0
    assert "which is not that of the hosted service" in capsys.readouterr().out
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    assert seen == [Settings(stable_reinforce="own"), Settings()]
    with pytest.raises(SystemExit):
        main(["--state-dir", str(tmp_path), "--stable-reinforce", "hosted"])


@pytest.mark.parametrize("more", [["--json"], []])
def test_what_the_builder_of_kernels_says_reaches_the_client(
    more: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a first start that is silent in its terminal; and as JSON a first line that is not the address."""
    builder = logging.getLogger("cookhouse.engine.kernels.cpu.build")

    def run(_options: ServiceOptions, *, on_ready: Callable[[str, str], None], **_: object) -> None:
        builder.info("building")
        on_ready("http://here", "a CPU")

    monkeypatch.setattr("cookhouse.server.__main__.run_server", run)
    assert main(["--state-dir", str(tmp_path), *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    if more:
        assert (json.loads(lines[0])["url"], lines[1:]) == ("http://here", ['{"note": "building"}'])
    else:
        assert lines[:2] == ["building", "serving at http://here"]
    assert builder.name == build.__module__  # where it speaks


def test_the_page_is_told_and_is_no_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a line that a program which starts a server takes for an answer."""

    def serve(_options: ServiceOptions, **options: Any) -> None:
        options["on_ready"]("http://127.0.0.1:9", "cpu")

    monkeypatch.setattr("cookhouse.server.__main__.run_server", serve)
    monkeypatch.setenv("COOKHOUSE_API_KEYS", KEY)
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("\nits page: http://127.0.0.1:9/page/\n")
    assert main(["--state-dir", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"url": "http://127.0.0.1:9", "engine": "cpu"}
    monkeypatch.delenv("COOKHOUSE_API_KEYS")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert "/page/#key=tml-" in capsys.readouterr().out


def test_budgets_of_memory_and_disk_come_from_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a refusal whose way out does nothing."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        "cookhouse.server.__main__.run_server", lambda options, **rest: seen.update(rest, options=options)
    )
    monkeypatch.setenv(CACHE_VARIABLE, "100")
    monkeypatch.setenv(SNAPSHOT_VARIABLE, "300")
    assert main(["--state-dir", str(tmp_path), "--max-cache-bytes", "200", "--samplers-only"]) == 0
    assert seen["make_worker"].engine_options["samplers_only"]
    cache_bytes = seen["make_worker"].engine_options["max_cache_bytes"]
    assert (cache_bytes, seen["options"].settings.max_snapshot_file_bytes) == (200, 300)
    monkeypatch.setenv(SNAPSHOT_VARIABLE, "0")
    with pytest.raises(SystemExit, match="2"):
        main(["--state-dir", str(tmp_path)])
    assert "--max-snapshot-file-bytes: 0 is less than 1" in capsys.readouterr().err


def test_a_state_folder_is_read_without_torch() -> None:
    """Would catch seconds of waiting for a list of checkpoints."""
    module = "cookhouse.server.storage.checkpoints.offline"
    script = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
