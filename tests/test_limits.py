"""What hangs in a test, or after it, ends, and the tests after it run."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import limits

TESTS = """
import asyncio, threading, time
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_waits(): threading.Event().wait()
def test_waits_in_a_loop(): asyncio.run(asyncio.Event().wait())
def test_waits_for_a_thread():
    async def body(): await asyncio.to_thread(time.sleep, 60)
    asyncio.run(body())
def test_fails_and_its_fixture_waits(stuck): raise ValueError
def test_goes_on(): pass
@pytest.mark.slow
def test_slow_ones_have_longer(): time.sleep(3)
def test_leaves_a_thread(): threading.Thread(target=time.sleep, args=(60,)).start()
"""
PROGRAM = ("-m", "pytest", "-p", "tests.limits", "-p", "no:cacheprovider", "-o", "timeout=2", "-m", "")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests with a limit of two seconds."""
    (folder / "test_hanging.py").write_text(TESTS)
    command = [sys.executable, *PROGRAM, "--rootdir", str(folder), "-c", "pyproject.toml", str(folder), *arguments]
    root = Path(__file__).parents[1]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_what_hangs_fails_by_name_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Would catch one test that holds `make test` for ever, and nobody knows which."""
    done = run(tmp_path, "-n", "1", "-rA", "-k", "not leaves_a_thread")
    told = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(("FAILED", "PASSED"))]
    ends = {name.split("::test_")[1]: end for end, name in told}
    waiting = ("waits", "waits_in_a_loop", "waits_for_a_thread", "fails_and_its_fixture_waits")
    passing = ("goes_on", "slow_ones_have_longer")
    assert ends == dict.fromkeys(waiting, "FAILED") | dict.fromkeys(passing, "PASSED"), done.stdout + done.stderr
    assert "in stuck" in done.stderr, "the stacks tell where it hung"


@pytest.mark.slow
def test_a_thread_that_is_left_does_not_keep_the_process(tmp_path: Path) -> None:
    done = run(tmp_path, "-k", "leaves_a_thread")
    assert "1 passed" in done.stdout
    assert done.returncode == 1
    assert "Timeout" in done.stderr


@pytest.mark.parametrize(
    ("device", "is_lost", "ends"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_a_process_that_lost_its_gpu_ends_and_tells_of_the_test(
    device: str, is_lost: bool, ends: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Would catch a hundred failures after the one that broke the context, which is the only one to read."""
    exits: list[int] = []
    monkeypatch.setattr(limits, "_is_gpu_lost", lambda: is_lost)
    monkeypatch.setattr("os._exit", exits.append)
    with (tmp_path / "stderr").open("wb") as file:
        config = SimpleNamespace(workerinput={}, getoption=lambda *_: device, stash={limits._STDERR: file.fileno()})
        item: Any = SimpleNamespace(config=config)
        call: Any = SimpleNamespace(when="call")
        report: Any = SimpleNamespace(failed=True, nodeid="test_x", longreprtext="an illegal memory access")
        making = limits.pytest_runtest_makereport(item, call)
        next(making)
        with pytest.raises(StopIteration) as stopped:
            making.send(report)
    assert stopped.value.value is report
    assert exits == [1] * ends
    assert ("test_x (call) lost the GPU's context:\nan illegal" in (tmp_path / "stderr").read_text()) is ends
