"""`cookhouse view`: which runs it shows, where it begins, and what it refuses."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.runs.kit import make_run
from tests.waiting import PATIENCE_SECONDS, next_line

from cookhouse.cli import main
from cookhouse.view.access import Access
from cookhouse.view.place import Place


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What would have been served: port and place. A folder with three runs is the current one."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("one", "two", "group/three")):
        make_run(tmp_path / "runs" / name, number=number)
    seen: list[Any] = []

    def serve(place: Place, _access: Access, port: int | None, tell: Any, labels: Path | None) -> None:
        seen.append((str(place.folder), place.only, labels or port))
        tell("http://127.0.0.1:1234")

    monkeypatch.setattr("cookhouse.view.serving.serve", serve)
    return seen


def view(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The address that is printed, without its token; or the error."""
    with pytest.raises(SystemExit) as exit_info:
        main(["view", *words])
    out, err = capsys.readouterr()
    if exit_info.value.code:
        assert exit_info.value.code == 2
        return err
    (address,) = [line.strip() for line in out.splitlines() if "http" in line]
    path, _, token = address.removeprefix("http://127.0.0.1:1234").rpartition("token=")
    assert len(token) >= 32
    return path


def test_all_runs(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert view(capsys) == "/?"
    assert view(capsys, "--port", "0", "--under", "runs/group") == "/?"
    assert view(capsys, "runs") == "/?"
    assert view(capsys, "--labels", "mine.jsonl") == "/?"
    assert served == [
        ("runs", None, None),
        ("runs/group", None, 0),
        ("runs", None, None),
        ("runs", None, Path("mine.jsonl")),
    ]


@pytest.mark.parametrize("name", ["two", "#2", "tw", "runs/two"])
def test_one_run(name: str, served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a run that is named here otherwise than by every other command.
    assert view(capsys, name) == "/runs/two/-/?"
    assert served == [("runs", None, None)]


def test_a_run_elsewhere_is_shown_alone(served: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Catches a folder such as a home that is searched through, and shown, because a run lies in it.
    make_run(tmp_path / "elsewhere" / "four")
    assert view(capsys, "elsewhere/four") == "/runs/four/-/?"
    assert served == [(str(tmp_path / "elsewhere"), "four", None)]


def test_several_are_compared(served: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert view(capsys, "two", "3") == "/compare?run=two&run=group%2Fthree&"
    make_run(tmp_path / "elsewhere" / "four")
    assert "name that one with --under" in view(capsys, "two", "elsewhere/four")
    assert len(served) == 1


def test_what_is_none_is_refused(served: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "unknown run 'nothing'" in view(capsys, "nothing")
    assert "there are no runs in empty" in view(capsys, "empty")
    assert "there is no folder nowhere" in view(capsys, "--under", "nowhere")
    assert served == []


def test_a_port_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use; pass another, or 0" in view(capsys, "--under", str(tmp_path), "--port", port)
    assert "port 70000 does not exist" in view(capsys, "--under", str(tmp_path), "--port", "70000")


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    # Catches a command that prints an address before it answers there, or that does not end on Ctrl-C.
    make_run(tmp_path / "one")
    command = [sys.executable, "-m", "cookhouse", "view", "--under", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert next_line(process) == f"serving the runs in {tmp_path}/ until Ctrl-C; open\n"
        next_line(process)
        address = next_line(process).strip()
        with httpx.stream("GET", address.replace("/?", "/events/runs?"), timeout=PATIENCE_SECONDS) as stream:
            assert stream.status_code == 200
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""
