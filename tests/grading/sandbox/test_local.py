"""The local sandbox: what programs can do, what they cannot, and the life of its workers."""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from cookhouse.errors import InputError, ServiceError
from cookhouse.grading.sandbox import Execution, ExecutionOutcome, IsolationMethod, Limits, LocalSandbox, Program, local
from cookhouse.grading.sandbox.isolation import describe, possible_methods
from cookhouse.grading.sandbox.warm_worker import WarmWorker

pytestmark = pytest.mark.anyio

_QUICK = Limits(wall_seconds=0.5)


@pytest.fixture(scope="module", params=list(possible_methods()))
def each(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """A sandbox of each kind that this system allows."""
    sandbox = LocalSandbox(num_workers=1, method=request.param, is_trusted=True)
    try:
        sandbox.isolation()
    except ServiceError as error:
        pytest.skip(f"this system does not allow it: {error}")
    yield sandbox
    sandbox.close()


async def _run(sandbox: LocalSandbox, source: str, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
    return await sandbox.run(Program(source=source, stdin=stdin, limits=limits or Limits()))


async def test_a_program_reads_and_prints_as_under_python(each: LocalSandbox) -> None:
    """Catches streams, text encoding or `__main__` that differ from `python main.py`."""
    source = """
if __name__ == "__main__":
    import sys
    print(input(), sys.stdin.read(), "é", sys.argv, file=sys.stderr)
    print(__file__)
"""
    execution = await _run(each, source, "ü\nrest".encode())
    assert execution.outcome is ExecutionOutcome.OK
    assert execution.stderr.decode() == "ü rest é ['main.py']\n"
    assert execution.stdout == b"main.py\n"


async def test_long_input_arrives_whole(each: LocalSandbox) -> None:
    """Catches input that is cut where a pipe is full, and a file of the input left in the folder."""
    source = "import os, sys\nprint(len(sys.stdin.read()), os.listdir('.'))"
    assert (await _run(each, source, b"x" * 3_000_000)).stdout == b"3000000 []\n"


@pytest.mark.parametrize(
    ("source", "status", "outcome"),
    [
        ("pass", 0, ExecutionOutcome.OK),
        ("import sys; sys.exit()", 0, ExecutionOutcome.OK),
        ("import sys; sys.exit(3)", 3, ExecutionOutcome.NONZERO_EXIT),
        ("import sys; sys.exit('words')", 1, ExecutionOutcome.NONZERO_EXIT),
        ("1 / 0", 1, ExecutionOutcome.NONZERO_EXIT),
        ("x =", 1, ExecutionOutcome.NONZERO_EXIT),
        ("import os; os._exit(7)", 7, ExecutionOutcome.NONZERO_EXIT),
        ("import os; os.kill(os.getpid(), 9)", -9, ExecutionOutcome.KILLED),
        ("x = ' ' * (1 << 40)", 1, ExecutionOutcome.MEMORY),
        ("import atexit; atexit.register(print, 'end')", 0, ExecutionOutcome.OK),
        (
            "import threading as t, time; t.Thread(target=lambda: (time.sleep(0.05), print('end'))).start()",
            0,
            ExecutionOutcome.OK,
        ),
    ],
)
async def test_status_and_outcome(source: str, status: int, outcome: ExecutionOutcome, each: LocalSandbox) -> None:
    """Catches an ending that the interpreter would report otherwise, or a thread or exit function that never ran."""
    execution = await _run(each, source)
    assert (execution.outcome, execution.status) == (outcome, status)
    assert execution.stdout == (b"end\n" if "end" in source else b"")


async def test_a_traceback_shows_the_program_alone(each: LocalSandbox) -> None:
    """Catches the harness and paths of the host in what a model may get to read."""
    stderr = (await _run(each, "def f(): 1 / 0\nf()")).stderr.decode()
    assert stderr.splitlines()[1:3] == ['  File "main.py", line 2, in <module>', '  File "main.py", line 1, in f']


async def test_wall_time_ends_a_run(each: LocalSandbox) -> None:
    """Catches a program that outlives its time by sleeping, which takes no CPU time."""
    execution = await _run(each, "import time; print(1, flush=True); time.sleep(60)", limits=_QUICK)
    assert (execution.outcome, execution.status, execution.stdout) == (ExecutionOutcome.TIMEOUT, None, b"1\n")
    assert 0.5 <= execution.seconds < 2.0


async def test_output_is_bounded_and_flagged(each: LocalSandbox) -> None:
    """Catches output that fills this process's memory, and a cut that nobody notices."""
    execution = await _run(each, "while True: print('x' * 99)", limits=Limits(output_bytes=1000))
    assert execution.outcome is ExecutionOutcome.OUTPUT
    assert execution.is_truncated
    assert len(execution.stdout) == 1000


async def test_every_run_starts_afresh(each: LocalSandbox) -> None:
    """Catches files, modules or built-ins that one program leaves to the next."""
    await _run(
        each, "import builtins, json, os\nbuiltins.x = json.x = 1\nos.makedirs('a/b')\nos.chmod('a', 0)\nopen('f', 'w')"
    )
    source = "import builtins, json, os\nprint(os.listdir('.'), hasattr(builtins, 'x'), hasattr(json, 'x'))"
    assert (await _run(each, source)).stdout == b"[] False False\n"


async def test_nothing_of_a_run_is_left_in_the_worker_s_memory(each: LocalSandbox) -> None:
    """Catches a program that finds an earlier one's source, input or output in its own memory: a solution to copy."""
    secret = f" needle-{secrets.token_hex(16)}" * 5000  # small pieces would be overwritten
    await _run(each, f"x = {secret!r}\nprint(x, input())", stdin=secret.encode())
    source = """
import re
with open("/proc/self/mem", "rb") as memory:
    for line in open("/proc/self/maps"):
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if " rw" in line:
            memory.seek(start)
            print(len(re.findall(rb"needle-[0-9a-f]{32}", memory.read(end - start))))
print("searched")
"""
    found = (await _run(each, source)).text.split()
    assert found[-1] == "searched"
    assert set(found[:-1]) == {"0"}


async def test_text_that_is_no_unicode_is_the_program_s_fault(each: LocalSandbox) -> None:
    """Catches a worker that dies of a lone surrogate, which a model can write."""
    assert (await _run(each, "x = '\ud800'")).outcome is ExecutionOutcome.NONZERO_EXIT
    assert (await _run(each, "print('\\ud800')")).outcome is ExecutionOutcome.NONZERO_EXIT


async def test_any_folder_is_emptied(each: LocalSandbox, caplog: pytest.LogCaptureFixture) -> None:
    """Catches folders that cannot be removed, which would cost the pool a worker each time."""
    await _run(each, "import os\nfor _ in range(1500):\n    os.mkdir('folder')\n    os.chdir('folder')")
    await _run(each, "import os\nos.makedirs('a/b')\nos.symlink('/', 'a/b/c')\nos.chmod('a/b', 0)\nos.chmod('a', 0)")
    assert (await _run(each, "import os; print(os.listdir('.'))")).stdout == b"[]\n"
    assert "starting another" not in caplog.text


async def test_random_numbers_differ_between_runs(each: LocalSandbox) -> None:
    """Catches forks that share the worker's random state."""
    drawn = {(await _run(each, "import random; print(random.random())")).stdout for _ in range(3)}
    assert len(drawn) == 3


async def test_the_environment_is_empty(each: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches keys that reach a program through its environment, or the worker's."""
    monkeypatch.setenv("COOKHOUSE_TEST_KEY", "secret")
    source = "import os\nprint(sorted(os.environ), flush=True)\nos.system('env')"
    output = (await _run(each, source)).text
    assert "secret" not in output
    assert output.startswith("['HOME', 'LANG', 'PATH', 'TMPDIR']")


async def test_files_of_the_host_are_out_of_sight(sandbox: LocalSandbox, tmp_path: Path) -> None:
    """Catches a mount that shows more than Python and the system's libraries, or lets a program write there."""
    if sandbox.isolation().method is IsolationMethod.PROCESS:
        pytest.skip("this system allows no file system of its own")
    (tmp_path / "secret").write_text("secret")
    root = Path(__file__).parents[3] / "pyproject.toml"
    source = f"""
import json, os
for path in ({str(tmp_path / "secret")!r}, {str(Path.home() / ".ssh")!r}, {__file__!r}, "/etc/shadow", {str(root)!r}):
    print(os.path.exists(path))
for path in ("/x", "/usr/x", "/etc/passwd", json.__file__):
    try:
        open(path, "a")
        print("written", path)
    except OSError:
        pass
print(os.path.exists("/proc/{os.getpid()}"))
"""
    assert (await _run(sandbox, source)).stdout == b"False\n" * 6


async def test_programs_see_no_network_and_no_other_process(each: LocalSandbox) -> None:
    """Catches a program that connects to a server of this host, or signals a process outside."""
    with socket.create_server(("127.0.0.1", 0)) as server, _sleeper() as victim:
        server.setblocking(False)
        source = f"""
import os, socket
for action in (
    lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 1),
    lambda: os.kill({victim.pid}, 9),
):
    try:
        action()
        print("could")
    except OSError as error:
        print("could not")
"""
        assert (await _run(each, source)).stdout == b"could not\n" * 2
        with pytest.raises(BlockingIOError):
            server.accept()
        assert victim.poll() is None


async def test_the_worker_survives_its_programs(each: LocalSandbox, caplog: pytest.LogCaptureFixture) -> None:
    """Catches a program that ends its worker, by a signal or through its limits, and costs the pool a new one."""
    for action in (
        "os.kill(os.getppid(), 9)",
        "os.kill(1, 9)",
        "os.killpg(0, 9)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))",
        "os.sched_setaffinity(os.getppid(), [0])",
    ):
        await _run(each, f"import os, resource\n{action}")
    assert (await _run(each, "print(1)")).stdout == b"1\n"
    assert "starting another" not in caplog.text


async def test_a_cancelled_run_is_killed(sandbox: LocalSandbox) -> None:
    """Catches a program that runs on, and holds its worker, after nobody waits for it."""
    long = asyncio.create_task(_run(sandbox, "while True: pass", limits=Limits(wall_seconds=60)))
    await asyncio.sleep(0.3)
    start = time.monotonic()
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    runs = [_run(sandbox, "print(1)") for _ in range(6)]  # more than there are workers
    assert [execution.stdout for execution in await asyncio.gather(*runs)] == [b"1\n"] * 6
    assert time.monotonic() - start < 5.0


async def test_runs_that_wait_can_be_cancelled(sandbox: LocalSandbox) -> None:
    """Catches cancelled runs that still take their turn later."""
    tasks = [
        asyncio.create_task(_run(sandbox, "import time; time.sleep(60)", limits=Limits(wall_seconds=60)))
        for _ in range(9)
    ]
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
    assert (await asyncio.wait_for(_run(sandbox, "print(1)"), 5)).stdout == b"1\n"


async def test_a_dead_worker_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a pool that stays broken once the system has killed one of its workers."""
    sandbox = LocalSandbox(num_workers=1)
    try:
        await _run(sandbox, "pass")
        (worker,) = _children(os.getpid()) - _others(sandbox)
        whole = {worker, *_descendants(worker)}
        os.kill(worker, signal.SIGKILL)
        wait_until(
            lambda: not any(map(_is_alive, whole))
        )  # what is inside dies a moment later, and may run one more program
        with caplog.at_level(logging.WARNING, logger="cookhouse"):
            assert (await _run(sandbox, "print(1)")).stdout == b"1\n"
        assert "starting another" in caplog.text
    finally:
        sandbox.close()


async def test_a_program_whose_workers_die_is_taken_to_be_the_cause() -> None:
    """Catches a run of a whole experiment that ends because one program found a way to end its worker."""
    sandbox = LocalSandbox(num_workers=1)
    try:
        task = asyncio.create_task(_run(sandbox, "while True: pass", limits=Limits(wall_seconds=60)))
        killed = 0
        while not task.done():
            await asyncio.sleep(0.2)
            for worker in _children(os.getpid()) - _others(sandbox):
                os.kill(worker, signal.SIGKILL)
                killed += 1
        assert (await task).outcome is ExecutionOutcome.KILLED
        assert killed >= 2
        assert (await _run(sandbox, "print(1)")).stdout == b"1\n"
    finally:
        sandbox.close()


async def test_closing_ends_every_process() -> None:
    """Catches workers, zombies and running programs that stay after `aclose`."""
    before = _descendants(os.getpid())
    sandbox = LocalSandbox(num_workers=2)
    running = [asyncio.create_task(_run(sandbox, "while True: pass", limits=Limits(wall_seconds=60))) for _ in range(2)]
    await asyncio.sleep(0.5)
    assert _descendants(os.getpid()) > before
    await sandbox.aclose()
    await asyncio.gather(*running, return_exceptions=True)
    for _ in range(100):
        if _descendants(os.getpid()) == before:
            break
        await asyncio.sleep(0.02)
    assert _descendants(os.getpid()) == before
    with pytest.raises(InputError, match="closed"):
        await _run(sandbox, "pass")


def test_a_process_that_ends_leaves_no_worker() -> None:
    """Catches workers that outlive their owner when it ends without closing, or is killed."""
    code = (
        "import asyncio, os, subprocess, sys\n"
        "from cookhouse.grading.sandbox import LocalSandbox, Program\n"
        "sandbox = LocalSandbox(num_workers=1)\n"
        "asyncio.run(sandbox.run(Program(source='pass')))\n"
        "print(*open(f'/proc/self/task/{os.getpid()}/children').read().split(), flush=True)\n"
        "if sys.argv[1] == 'killed': os.kill(os.getpid(), 9)\n"
    )
    for how in ("ended", "killed"):
        run = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, timeout=60, check=False)
        workers = [int(pid) for pid in run.stdout.split()]
        deadline = time.monotonic() + 5
        while any(_is_alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(_is_alive(pid) for pid in workers), how


def test_usable_from_several_event_loops(sandbox: LocalSandbox) -> None:
    """Catches locks or queues that belong to the loop that used the sandbox first."""
    outputs: list[bytes] = []

    def work() -> None:
        outputs.append(asyncio.run(_run(sandbox, "print(1)")).stdout)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert outputs == [b"1\n"] * 4


def test_weak_isolation_is_stated_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a sandbox that is weaker than its user believes."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sandbox = LocalSandbox(num_workers=2, method=IsolationMethod.PROCESS)
    with caplog.at_level(logging.WARNING), contextlib.closing(sandbox):
        asyncio.run(_twice(sandbox))
        assert "NOT isolated: files of" in str(sandbox.isolation())
    assert sum("NOT isolated" in message for message in caplog.messages) == 1


@pytest.fixture
def _no_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without namespaces, whose worker fails as there, and without bubblewrap."""

    def start(method: IsolationMethod, *settings: Any) -> WarmWorker:
        if method is IsolationMethod.NAMESPACES:
            raise ServiceError("a sandbox worker isolated by namespaces did not start: Operation not permitted")
        return WarmWorker(method, *settings)

    monkeypatch.setattr(local, "WarmWorker", start)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("COOKHOUSE_WEAK_SANDBOX", raising=False)


def _be(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)


@pytest.mark.usefixtures("_no_walls")
@pytest.mark.parametrize("value", [None, "", "0"])
async def test_without_walls_nothing_runs(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches programs of a model that run with the rights of a user who has not said so."""
    _be(1000, monkeypatch)
    if value is not None:
        monkeypatch.setenv("COOKHOUSE_WEAK_SANDBOX", value)
    with contextlib.closing(LocalSandbox(num_workers=1)) as sandbox:
        with pytest.raises(InputError, match=r"not permitted.*install bubblewrap.*COOKHOUSE_WEAK_SANDBOX=1"):
            await _run(sandbox, "print(1)")
        with pytest.raises(InputError, match="no bwrap"):
            sandbox.isolation()


@pytest.mark.usefixtures("_no_walls")
async def test_weak_walls_are_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a way out that the message names and that leads nowhere."""
    _be(1000, monkeypatch)
    monkeypatch.setenv("COOKHOUSE_WEAK_SANDBOX", "1")
    with contextlib.closing(LocalSandbox(num_workers=1)) as sandbox:
        assert (await _run(sandbox, "print(1)")).stdout == b"1\n"
        assert sandbox.isolation().method is IsolationMethod.PROCESS


@pytest.mark.usefixtures("_no_walls")
@pytest.mark.parametrize("method", [None, IsolationMethod.PROCESS])
async def test_root_has_no_weak_walls(method: IsolationMethod | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a setting that lets a model's programs write the files of every user."""
    _be(0, monkeypatch)
    monkeypatch.setenv("COOKHOUSE_WEAK_SANDBOX", "1")
    with (
        contextlib.closing(LocalSandbox(num_workers=1, method=method)) as sandbox,
        pytest.raises(InputError, match=r"as root.*run as another user"),
    ):
        await _run(sandbox, "print(1)")


@pytest.mark.usefixtures("_no_walls")
async def test_own_programs_need_no_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches grading of mathematics, which runs no model's code, refused on such a system."""
    _be(0, monkeypatch)
    with contextlib.closing(LocalSandbox(num_workers=1, is_trusted=True)) as sandbox:
        assert (await _run(sandbox, "print(1)")).stdout == b"1\n"


def test_good_isolation_has_nothing_to_excuse() -> None:
    """Catches a warning where everything stands."""
    assert "NOT" not in str(describe(IsolationMethod.NAMESPACES, has_own_user=True, has_filter=True))


def test_a_sandbox_needs_a_worker() -> None:
    with pytest.raises(InputError, match="at least 1"):
        LocalSandbox(num_workers=0)


@pytest.mark.parametrize("name", ["wall_seconds", "memory_bytes", "processes"])
def test_limits_are_positive(name: str) -> None:
    """Catches a zero that an operating system reads as `none`."""
    with pytest.raises(InputError, match=name):
        Limits(**{name: 0})


async def _twice(sandbox: LocalSandbox) -> None:
    await asyncio.gather(_run(sandbox, "pass"), _run(sandbox, "pass"))


@contextlib.contextmanager
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()[:60].replace(")", " ")
    return False


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def _descendants(pid: int) -> set[int]:
    children = _children(pid)
    return children.union(*(_descendants(child) for child in children))


def _others(sandbox: LocalSandbox) -> set[int]:
    """Children of this process that are not of this sandbox."""
    own = {worker.pid for slot in sandbox._all for worker in slot._workers.values()}
    return _children(os.getpid()) - own
