"""A service on another machine that is gone, or that never answers: the run ends, and says how."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping

import pytest
from tests.e2e.conftest import SETTINGS, Cookhouse, Reference, exported_by, losses
from tests.waiting import PATIENCE_SECONDS, wait_until

from cookhouse.runs import read_history

pytestmark = pytest.mark.slow


@pytest.fixture
def serving(cookhouse: Cookhouse) -> Iterator[subprocess.Popen[str]]:
    """A service of its own for each test, which ends with it however the test left it."""
    process = cookhouse.start("serve", "--port", "0", "--state-dir", "state")
    yield process
    process.kill()
    for server in cookhouse.servers():
        os.kill(server, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture
def exports(serving: subprocess.Popen[str]) -> Mapping[str, str]:
    return exported_by(serving)


def start_run(cookhouse: Cookhouse, exports: Mapping[str, str], *settings: str) -> subprocess.Popen[str]:
    """A run that is under way, and longer than any test."""
    words = ("run", "supervised", *SETTINGS, "max_steps=100", "num_epochs=9", "log_path=run", *settings)
    running = cookhouse.start(*(word for word in words if word != "max_steps=24"), env=exports)
    wait_until(lambda: len(losses(cookhouse.folder / "run")) >= 6 or running.poll() is not None)
    return running


def end_of(running: subprocess.Popen[str]) -> str:
    output, _ = running.communicate(timeout=PATIENCE_SECONDS)
    return output


def test_it_ends_with_the_reason_and_the_command_that_continues(
    cookhouse: Cookhouse, serving: subprocess.Popen[str], exports: Mapping[str, str]
) -> None:
    running = start_run(cookhouse, exports, "service_patience_seconds=3")
    serving.kill()
    output = end_of(running)
    assert running.returncode == 1, output
    assert f"error: the training service at {exports['TINKER_BASE_URL']} has not answered for" in output
    assert "run supervised log_path=run behavior_if_log_dir_exists=resume" in output
    assert "Traceback" not in output
    assert (cookhouse.folder / "run" / "report.html").exists(), "what can be kept is kept"
    history = read_history(cookhouse.folder / "run")
    assert history.status == "failed", "nobody interrupted it"
    assert "has not answered for" in str(history.error)


def test_a_run_goes_on_when_a_supervisor_starts_the_service_again(
    cookhouse: Cookhouse, serving: subprocess.Popen[str], exports: Mapping[str, str], reference: Reference
) -> None:
    """Both processes are killed, as a machine does that goes down, and the same command is typed again."""
    running = cookhouse.start("run", "supervised", *SETTINGS, "log_path=run", env=exports)
    wait_until(lambda: len(losses(cookhouse.folder / "run")) >= 6 or running.poll() is not None)
    serving.kill()
    for server in cookhouse.servers():
        with contextlib.suppress(ProcessLookupError):  # it has seen that the other is gone
            os.kill(server, signal.SIGKILL)
    port = exports["TINKER_BASE_URL"].rpartition(":")[2]
    again = cookhouse.start("serve", "--port", port, "--state-dir", "state")
    assert exported_by(again) == exports
    output = end_of(running)
    assert running.returncode == 0, output
    assert losses(cookhouse.folder / "run") == reference.losses
    again.send_signal(signal.SIGTERM)
    said, _ = again.communicate(timeout=PATIENCE_SECONDS)
    assert "restored 1 models of 1 sessions" in said
    assert "stopping once what was accepted is answered" in said


def test_asked_to_stop_it_does_so_without_the_service(cookhouse: Cookhouse, exports: Mapping[str, str]) -> None:
    """Its patience is longer than the test's: would catch a run that waits for answers to what is in flight."""
    running = start_run(cookhouse, exports)
    os.kill(cookhouse.servers()[0], signal.SIGSTOP)
    running.send_signal(signal.SIGTERM)
    output = end_of(running)
    assert running.returncode == 1, output
    assert "has not answered for" in output
    assert "run supervised log_path=run behavior_if_log_dir_exists=resume" in output


def test_a_second_signal_ends_it_at_once(cookhouse: Cookhouse, exports: Mapping[str, str]) -> None:
    running = start_run(cookhouse, exports)
    os.kill(cookhouse.servers()[0], signal.SIGSTOP)
    running.send_signal(signal.SIGTERM)
    assert running.stdout is not None
    assert any("interrupted: finishing" in line for line in iter(running.stdout.readline, ""))
    time.sleep(1.5)  # sooner, it would be the same signal
    running.send_signal(signal.SIGTERM)
    output = end_of(running)
    assert running.returncode == 130, output
    assert "stopped\nits last checkpoint is kept; continue with:\n" in output


def test_a_session_that_never_opens_ends_the_run(cookhouse: Cookhouse) -> None:
    """Would catch a process that waits, at its end, for a thread in which the SDK goes on trying."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        nobody = {"TINKER_BASE_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}", "TINKER_API_KEY": "tml-any"}
        done = cookhouse.run("run", "supervised", "service_patience_seconds=2", "log_path=run", env=nobody)
    assert done.returncode == 1
    assert "has not answered for" in done.stderr
