"""The embedded server's life, with a stand-in for the server process."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import next_line, wait_until

from cookhouse.errors import InputError, ServiceError
from cookhouse.models.hub import NoopHub, hub_in_use
from cookhouse.service.embedded import EmbeddedService
from cookhouse.service.local import local_server
from cookhouse.service.process import started_server
from cookhouse.service.running import Deaths, Restarts

pytestmark = pytest.mark.anyio

# Waits until it is told what to serve, as a server does.
TOLD = """
import os, sys
from cookhouse.server.startup.libraries import wait_for_arguments
argv = wait_for_arguments(os.environ)
if argv is None: sys.exit(0)
"""
# Says it is ready, writes what it was given beside the state, and stops at the end of its stdin.
SERVER = """
import json, os, pathlib, sys
state = pathlib.Path(argv[argv.index("--state-dir") + 1])
(state / "new").write_text(json.dumps({"argv": argv, "env": {**os.environ, "PID": str(os.getpid())}}))
(state / "new").rename(state / "seen.json")
print("a library says hello", flush=True)
print(json.dumps({"url": "http://127.0.0.1:1"}), flush=True)
os.read(0, 1)
(state / "stopped").touch()
"""


def command(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", TOLD + code)


def seen(state: Path) -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads((state / "seen.json").read_text())
    return content


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """A user who keeps nothing from others."""
    before = os.umask(0)
    yield
    os.umask(before)


async def test_it_is_ready_inside_and_gone_after(tmp_path: Path) -> None:
    state = tmp_path / "service"
    async with local_server(state, base_models=["cookhouse/tiny"], command=command(SERVER)) as server:
        assert server.url == "http://127.0.0.1:1"
        assert server.process.returncode is None
    assert server.process.returncode == 0
    assert (state / "stopped").exists(), "it was killed instead of asked"


async def test_a_model_of_a_hub_comes_with_its_folder(tmp_path: Path) -> None:
    """Catches a server that downloads by itself, in silence."""
    hub = NoopHub(tmp_path / "hub")
    names = ["someone/model:peft:2048", "cookhouse/tiny", f"mine={tmp_path}"]
    with hub_in_use(hub):
        async with local_server(tmp_path / "state", base_models=names, command=command(SERVER)):
            argv = list(seen(tmp_path / "state")["argv"])
    told = [argv[index + 1] for index, word in enumerate(argv) if word == "--base-model"]
    assert told == [f"someone/model={tmp_path}/hub/someone--model", "cookhouse/tiny", f"mine={tmp_path}"]


async def test_a_folder_keeps_its_key_and_the_command_line_does_not_show_it(tmp_path: Path) -> None:
    keys = []
    for _ in range(2):
        async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(SERVER)) as server:
            keys.append(server.api_key)
    assert keys[0].startswith("tml-")
    assert keys[0] == keys[1], "checkpoints of the first server would belong to somebody else"
    assert (tmp_path / "api-key").stat().st_mode & 0o077 == 0
    assert keys[0] not in seen(tmp_path)["argv"]
    assert seen(tmp_path)["env"]["COOKHOUSE_API_KEYS"] == keys[0]


@pytest.mark.parametrize("is_old", [False, True])
async def test_nobody_else_reads_its_log_its_key_or_its_lock(tmp_path: Path, open_to_all: None, is_old: bool) -> None:
    """Would catch a key that another user of the machine can read, also in a folder that an older version left open."""
    del open_to_all
    names, state_dir = {"server.log", "api-key", "lock"}, tmp_path / "state"
    if is_old:
        state_dir.mkdir()
        for name in names:
            (state_dir / name).touch()
    async with local_server(state_dir, base_models=["cookhouse/tiny"], command=command(SERVER)):
        assert {oct((state_dir / name).stat().st_mode & 0o777) for name in names} == {"0o600"}
    assert is_old or state_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("database", [None, "postgresql://me:secret@here/x"])
async def test_a_server_has_the_database_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str | None
) -> None:
    """Would catch a run whose rows go into the database of the service that the environment is for, and a password that
    every user of the machine can read.
    """
    monkeypatch.setenv("COOKHOUSE_DATABASE", "postgresql://others")
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], database=database, command=command(SERVER)):
        told = seen(tmp_path)
    assert told["env"]["COOKHOUSE_DATABASE"] == (database or "")
    assert "secret" not in str(told["argv"])


async def test_loopback_is_exempt_from_a_proxy_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "intranet")
    monkeypatch.delenv("no_proxy", raising=False)
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(SERVER)):
        assert os.environ["NO_PROXY"] == "intranet,127.0.0.1,localhost"
        assert os.environ["no_proxy"] == "127.0.0.1,localhost"
    assert os.environ["NO_PROXY"] == "intranet"
    assert "no_proxy" not in os.environ


async def test_what_the_server_warns_of_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a run that is slow for a reason that stands only in a file, and what an earlier server wrote."""
    (tmp_path / "server.log").write_text("2026-01-02 03:04:05,678 WARNING engine: long ago\n")
    said = "2026-01-02 03:04:05,678 WARNING cookhouse.engine.kernels: no C++ compiler\n  and more\nWARNING: a library\n"
    code = f"import sys; sys.stderr.write({said!r}); sys.stderr.flush()\n{SERVER}"
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(code)):
        assert [record.getMessage() for record in caplog.records] == ["no C++ compiler"]


async def test_a_server_that_refuses_is_the_callers_error(tmp_path: Path) -> None:
    code = "import sys; print('warming up\\nerror: no model called x', file=sys.stderr); sys.exit(2)"
    with pytest.raises(InputError, match=r"^no model called x$"):
        async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(code)):
            pass


async def test_a_server_that_breaks_shows_the_end_of_its_own_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("from an earlier server\n")
    code = "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ServiceError, match=r"did not start \(exit code 3\)\n  out of luck") as caught:
        async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(code)):
            pass
    assert "earlier" not in str(caught.value)
    assert str(log) in str(caught.value)


async def test_a_server_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    """Would catch `cookhouse serve` that gives up when its server is killed in its first minutes."""
    code = "import os, pathlib, signal\ncount = pathlib.Path(argv[argv.index('--state-dir') + 1]) / 'starts'\n"
    code += "with count.open('a') as told: told.write('x')\n"
    killed = code + "if len(count.read_text()) < 3: os.kill(os.getpid(), signal.SIGKILL)\n" + SERVER
    said: list[str] = []
    async with local_server(
        tmp_path, base_models=["cookhouse/tiny"], command=command(killed), say=said.append
    ) as server:
        assert server.url == "http://127.0.0.1:1"
        assert option(seen(tmp_path), "--end-sessions") == ["eof", "start"], "it is still the first start"
    assert said == ["the embedded server did not start (signal 9); it is started again"] * 2
    assert (tmp_path / "starts").read_text() == "xxx"
    always = SERVER.replace("os.read(0, 1)", "").replace(
        'print("a library', 'os.kill(os.getpid(), 9); print("a library'
    )
    with pytest.raises(ServiceError, match=r"did not start \(signal 9\)(.|\n)*it has died 3 times"):
        async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(always)):
            pass


@pytest.mark.parametrize("exit_code", [0, 1])
async def test_a_server_that_fails_by_itself_is_not_started_again(tmp_path: Path, exit_code: int) -> None:
    said: list[str] = []
    with pytest.raises(ServiceError, match="did not start"):
        async with local_server(
            tmp_path, base_models=["cookhouse/tiny"], command=command(f"sys.exit({exit_code})"), say=said.append
        ):
            pass
    assert said == []


def embedded(
    state: Path, code: str = SERVER, *, say: Callable[[str], None] = print, max_deaths: int = 3
) -> EmbeddedService:
    return EmbeddedService(
        lambda: local_server(state, base_models=["cookhouse/tiny"], command=command(code), say=say),
        Restarts(max_deaths=max_deaths),
    )


async def test_a_service_that_nobody_needs_is_not_started(tmp_path: Path) -> None:
    async with embedded(tmp_path / "service") as service:
        assert await service.guard(asyncio.sleep(0, "done")) == "done"
    assert not (tmp_path / "service").exists()


async def test_a_service_runs_from_its_first_use_to_the_end(tmp_path: Path) -> None:
    async with embedded(tmp_path) as service:
        server = await service.start()
        assert await service.start() is server
        assert server.process.returncode is None
    assert (tmp_path / "stopped").exists()


async def test_a_process_that_is_told_nothing_is_gone_at_once() -> None:
    """Would catch a run that is refused and leaves its engine behind."""
    async with started_server(command("")) as server:
        assert server.returncode is None
    assert server.returncode == -signal.SIGKILL
    assert not is_alive(server.pid)


async def test_a_server_that_was_started_before_serves(tmp_path: Path) -> None:
    """Would catch a second process beside the one that has loaded, and one that keeps its folder locked."""
    async with started_server(command(SERVER)) as early:
        nothing = ("/nowhere/python",)
        async with local_server(
            tmp_path, base_models=["cookhouse/tiny"], command=nothing, process=early, say=print
        ) as server:
            assert server.process is early
            assert is_locked(tmp_path / "lock")
        assert early.returncode == 0
        assert (tmp_path / "stopped").exists()
    assert not is_locked(tmp_path / "lock")


async def test_what_a_process_says_before_it_is_told_stands_in_its_log(tmp_path: Path) -> None:
    """Would catch a broken installation that says nothing: it dies while it imports, before there is a log."""
    broken = (sys.executable, "-c", "raise ImportError('no torch')")
    with pytest.raises(ServiceError, match=r"did not start \(exit code 1\)(.|\n)*ImportError: no torch"):
        async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=broken):
            pass
    assert "no torch" in (tmp_path / "server.log").read_text()


async def test_what_a_server_says_is_said_while_it_starts_and_later(tmp_path: Path) -> None:
    """Would catch a first start that builds kernels in silence."""
    lines = "print(json.dumps({'warning': 'lost'}), flush=True)\nprint(json.dumps({'note': 'later'}), flush=True)\n"
    later = SERVER.replace("os.read(0, 1)", lines + "os.read(0, 1)")
    code = f"import json\nprint(json.dumps({{'note': 'building'}}), flush=True)\n{later}"
    said: list[str] = []
    warned: list[str] = []
    heard = asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        if text == "later":
            heard.set()

    words = command(code)
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=words, say=say, warn=warned.append):
        assert said[0] == "building"
        await asyncio.wait_for(heard.wait(), 60)
    assert said == ["building", "later"]
    assert warned == ["lost"]


async def test_guarded_work_keeps_its_own_error(tmp_path: Path) -> None:
    async def fail() -> None:
        raise LookupError("mine")

    async with embedded(tmp_path) as service:
        with pytest.raises(LookupError, match="mine"):
            await service.guard(fail())


async def test_a_server_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a run that ends though its server lost nothing, a server that nobody finds at its new port, or that
    has another folder or key, and a proxy between.
    """
    monkeypatch.setenv("NO_PROXY", "intranet")
    said: list[str] = []
    async with embedded(tmp_path, say=said.append) as service:
        server = await service.start()
        first, before = server.process, seen(tmp_path)

        async def work() -> str:
            first.kill()
            await wait_for(lambda: server.process is not first)
            assert os.environ["NO_PROXY"].startswith("intranet,127.0.0.1")
            return "done"

        assert await service.guard(work()) == "done"
        after = seen(tmp_path)
        assert is_locked(tmp_path / "lock")
    assert said == ["the embedded server died (signal 9); it is started again, and work goes on"]
    assert after["env"]["COOKHOUSE_API_KEYS"] == before["env"]["COOKHOUSE_API_KEYS"]
    (port,) = option(after, "--port")
    assert (option(before, "--port"), port) == (["0"], "1"), "it is to come back where its clients look for it"
    assert option(after, "--state-dir") == option(before, "--state-dir")
    assert (option(before, "--end-sessions"), option(after, "--end-sessions")) == (["eof", "start"], ["eof"])
    assert server.process.returncode == 0
    assert not is_locked(tmp_path / "lock")


async def test_a_server_that_dies_too_often_ends_the_work_it_serves(tmp_path: Path) -> None:
    async with embedded(tmp_path, max_deaths=2) as service:
        server = await service.start()
        first = server.process

        async def work() -> None:
            first.kill()
            await wait_for(lambda: server.process is not first)
            server.process.kill()
            await asyncio.sleep(60)

        with pytest.raises(ServiceError, match=r"died \(signal 9\)(.|\n)*server.log\n.*it has died 2 times"):
            await service.guard(work())


async def test_a_server_that_cannot_start_again_ends_the_work(tmp_path: Path) -> None:
    """Would catch starts without end, and a run that is blamed for what another program did to its port."""
    again = "import pathlib, sys\nif '--port' in argv and argv[argv.index('--port') + 1] != '0':\n"
    again += "    print('error: port 1 is in use', file=sys.stderr)\n    sys.exit(2)\n"
    said: list[str] = []
    async with embedded(tmp_path, again + SERVER, say=said.append) as service:
        (await service.start()).process.kill()
        with pytest.raises(ServiceError, match=r"cannot start again: port 1 is in use\nit is not started again"):
            await service.guard(asyncio.sleep(60))
    assert said == [
        "the embedded server died (signal 9); it is started again, and work goes on",
        "the embedded server cannot start again: port 1 is in use; it is started again, and work goes on",
    ]


async def test_a_server_waits_for_a_cluster_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that is given up after three looks for a head of Ray's that takes a minute to come back."""
    monkeypatch.setattr("cookhouse.service.running._FIRST_PAUSE_SECONDS", 0.01)
    away = "import pathlib, sys\nif '--port' in argv and argv[argv.index('--port') + 1] != '0':\n"
    away += "    tries = pathlib.Path(argv[argv.index('--state-dir') + 1]) / 'tries'\n"
    away += "    tries.open('a').write('x')\n    if len(tries.read_text()) < 6:\n"
    away += "        print('error: nobody answers at head:6379', file=sys.stderr)\n        sys.exit(2)\n"
    said: list[str] = []
    async with EmbeddedService(
        lambda: local_server(
            tmp_path,
            base_models=["cookhouse/tiny"],
            command=(*command(away + SERVER), "--ray", "head:6379"),
            say=said.append,
        ),
        Restarts(max_deaths=2),
    ) as service:
        server = await service.start()
        first = server.process
        first.kill()
        await service.guard(wait_for(lambda: server.process is not first))
    why = "the embedded server cannot start again: nobody answers at head:6379; trying again in "
    assert said[0] == "the embedded server died (signal 9); it is started again, and work goes on"
    assert said[1:] == [f"{why}{0.01 * 2**index:g} s" for index in range(5)]


async def test_leaving_while_it_starts_again_stops_it(tmp_path: Path) -> None:
    """Would catch a process that is left behind by a run which ended meanwhile."""
    slow = SERVER.replace('print("a library', "import time\nif '0' not in argv: time.sleep(60)\nprint(\"a library")
    async with embedded(tmp_path, slow) as service:
        (await service.start()).process.kill()
        await wait_for(lambda: option(seen(tmp_path), "--port") == ["1"])
        started = int(seen(tmp_path)["env"]["PID"])
    assert not is_alive(started)


async def test_a_server_that_has_drained_is_not_started_again(tmp_path: Path) -> None:
    """Would catch a service that comes back when it was told to stop, and one that is told by EOF, which loses what it
    has accepted.
    """
    told = SERVER.replace("os.read(0, 1)", '(state / "told").write_bytes(os.read(0, 9))')
    said: list[str] = []
    async with embedded(tmp_path, told, say=said.append) as service:
        server = await service.start()
        await service.guard(service.drain())
        assert server.process.returncode == 0
    assert (tmp_path / "told").read_bytes() == b"drain\n"
    assert said == []


@pytest.mark.parametrize(
    ("served", "given_up"),
    [
        ([5, 5, 5], [False, False, True]),
        ([50, 50, 50], [False, False, False]),
        ([0, 0, 0], [False, False, True]),
        ([500, 1, 70, 1, 1], [False, False, False, False, True]),
    ],
)
def test_three_deaths_in_a_minute_of_serving_are_too_many(served: list[float], given_up: list[bool]) -> None:
    """Would catch a server that dies while it starts, minute after minute, and a run of days that ends at its third
    death.
    """
    deaths = Deaths(Restarts())
    assert [deaths.note(seconds) for seconds in served] == given_up


async def test_a_server_that_does_not_start_fails_whoever_waits_for_it(tmp_path: Path) -> None:
    async with embedded(tmp_path, "import sys; sys.exit(3)") as service:
        with pytest.raises(ServiceError, match="did not start"):
            await service.guard(service.start())


async def test_leaving_while_it_starts_stops_it_and_whoever_waits_for_it(tmp_path: Path) -> None:
    slow = SERVER.replace('print("a library', 'import time; time.sleep(60); print("a library')
    async with embedded(tmp_path, slow) as service:
        waiting = asyncio.ensure_future(service.start())
        await asyncio.to_thread(wait_until, (tmp_path / "seen.json").exists)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_deaf_server_is_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.service.process._EOF_PATIENCE_SECONDS", 0.2)
    code = SERVER.replace("os.read(0, 1)", "import time; time.sleep(60)")
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(code)) as server:
        pass
    assert server.process.returncode == -signal.SIGTERM


async def test_two_servers_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.service.local._LOCK_PATIENCE_SECONDS", 0.2)
    async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(SERVER)):
        with pytest.raises(InputError, match="in use by another server"):
            async with local_server(tmp_path, base_models=["cookhouse/tiny"], command=command(SERVER)):
                pass


CLIENT = """
import asyncio, sys
from pathlib import Path
from cookhouse.service.local import local_server

async def main():
    async with local_server(Path(sys.argv[1]), base_models=["cookhouse/tiny"], command=sys.argv[2:]) as server:
        print(server.process.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_killed_client_takes_its_server_along(tmp_path: Path) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(tmp_path), *command(SERVER)], stdout=subprocess.PIPE, text=True
    )
    pid = int(next_line(client))
    client.kill()
    client.communicate()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


async def wait_for(is_so: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, is_so)


def option(content: dict[str, dict[str, str]], name: str) -> list[str]:
    """The values of a server's option, as it saw them."""
    argv = list(content["argv"])
    return [argv[index + 1] for index, word in enumerate(argv) if word == name]


def is_locked(file: Path) -> bool:
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
