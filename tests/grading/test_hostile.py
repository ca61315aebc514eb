"""Every hostile program grades as failed; afterwards the host is as it was and the pool works."""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cookhouse.grading import AssertTest, CodeTest, FunctionTest, StdinTest, grade_code
from cookhouse.grading.sandbox import IsolationMethod, Limits, LocalSandbox

pytestmark = pytest.mark.anyio

_LIMITS = Limits(memory_bytes=256 << 20, disk_bytes=16 << 20)
_SECONDS = 0.7


def _read_corpus(name: str) -> dict[str, str]:
    """Sections of a text file by their heading, a line that starts with `=== `."""
    _, *sections = (Path(__file__).parent / name).read_text(encoding="utf-8").split("\n=== ")
    return {heading: body for heading, _, body in (section.partition("\n") for section in sections)}


PROGRAMS = _read_corpus("hostile_programs.txt")
SOLUTIONS = _read_corpus("hostile_solutions.txt")


class Host:
    """What must not change: a file, a port that nobody reaches, processes."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self._file = folder / "canary"
        self._file.write_text("alive")
        self._listener = listener

    def fill_in(self, source: str) -> str:
        port = self._listener.getsockname()[1]
        names = {"@CANARY@": str(self._file), "@PORT@": str(port), "@PID@": str(os.getpid()), "@NUL@": "\0"}
        for name, value in names.items():
            source = source.replace(name, value)
        return source

    def check(self) -> None:
        assert self._file.read_text() == "alive"
        assert list(self._file.parent.iterdir()) == [self._file]
        with pytest.raises(BlockingIOError):
            self._listener.accept()
        assert not list(_programs_alive())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Host(tmp_path, listener)


@pytest.fixture(autouse=True)
def _isolated(sandbox: LocalSandbox) -> None:
    if sandbox.isolation().method is IsolationMethod.PROCESS:
        pytest.skip("this system allows neither namespaces nor bubblewrap; hostile programs would harm it")


@pytest.mark.parametrize("name", PROGRAMS)
async def test_hostile_program(name: str, sandbox: LocalSandbox, host: Host) -> None:
    """Catches a hole in the isolation, a limit that does not hold, or a process that survives its run."""
    test = StdinTest(input="7\n", output=f"answer-{secrets.token_hex(16)}")
    await _must_fail(host.fill_in(PROGRAMS[name]), test, sandbox)
    host.check()


@pytest.mark.parametrize("name", SOLUTIONS)
async def test_hostile_solution(name: str, sandbox: LocalSandbox, host: Host) -> None:
    """Catches a solution that learns what is expected, speaks for the judge, or decides what equals what."""
    answer = f"answer-{secrets.token_hex(16)}"
    check = f"def check(candidate):\n    assert candidate(7) == {answer!r}\n    assert candidate(7) == {answer!r}\n"
    for test in (
        FunctionTest(entry_point="solve", arguments=[7], expected=answer),
        AssertTest(code=f"{check}check(solve)", names=["solve"]),
        AssertTest(code=f"assert solve(7) == {answer!r}"),
    ):
        await _must_fail(SOLUTIONS[name], test, sandbox)
    host.check()


async def _must_fail(code: str, test: CodeTest, sandbox: LocalSandbox) -> None:
    grade = await grade_code(code, [test], sandbox=sandbox, timeout_seconds=_SECONDS, limits=_LIMITS)
    assert grade.reward == 0.0, grade
    good = "def solve(n): return n * 2\nif __name__ == '__main__': print(solve(int(input())))"
    healthy: list[CodeTest] = [StdinTest(input="3", output="6"), AssertTest(code="assert solve(3) == 6")]
    grade = await grade_code(good, healthy, sandbox=sandbox, limits=_LIMITS)
    assert grade.reward == 1.0, grade


def _programs_alive() -> Iterator[int]:
    """Processes below the workers of this process: outer process, zygote, and then there should be none."""
    for outer in _children(os.getpid()):
        for zygote in _children(outer):
            yield from _children(zygote)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
