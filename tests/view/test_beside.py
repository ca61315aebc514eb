"""The page of a run in a process of its own."""

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.runs.kit import make_run
from tests.waiting import PATIENCE_SECONDS, next_line, wait_until

from cookhouse.view.beside import PageBeside

Told = queue.Queue[tuple[str, str]]


def page_of(run: Path) -> tuple[PageBeside, Told]:
    told: Told = queue.Queue()
    return PageBeside(run, lambda address, problem: told.put((address, problem))), told


def answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False


def test_it_shows_the_run_and_ends_with_it(tmp_path: Path) -> None:
    # Catches a page that shows what lies beside the run, that takes its processor, or that outlives it.
    make_run(tmp_path / "one")
    make_run(tmp_path / "other")
    page, told = page_of(tmp_path / "one")
    with page:
        address, problem = told.get(timeout=PATIENCE_SECONDS)
        assert "/runs/one/-/?token=" in address, problem
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, page.process_id) == min(19, own + 10)
        base, _, token = address.partition("/runs/one/-/?token=")
        answer = httpx.get(f"{base}/api/?token={token}", timeout=PATIENCE_SECONDS)
        assert [run["name"] for run in answer.json()["runs"]] == ["one"]
    assert not answers(f"{base}/?token={token}")


def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    # Catches a process that stays, and keeps a port: nobody tells it that the run is gone.
    code = (
        "import sys, time; from pathlib import Path; from cookhouse.view.beside import PageBeside\n"
        "def tell(address, problem): print(address.replace('/runs/one/-/', '/'), flush=True)\n"
        "with PageBeside(Path(sys.argv[1]), tell): time.sleep(1000)\n"
    )
    run = make_run(tmp_path / "one")
    process = subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE, text=True)
    address = next_line(process).strip()
    assert answers(address)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not answers(address))


def test_why_it_cannot_be_served_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a run that waits for an address that never comes.
    monkeypatch.setattr("cookhouse.view.beside.COMMAND", (sys.executable, "-c", "import sys; sys.exit('no socket')"))
    page, told = page_of(tmp_path)
    with page:
        assert told.get(timeout=PATIENCE_SECONDS) == ("", "no socket")
