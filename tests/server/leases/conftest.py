"""Servers that share a database and a folder: two in the process of the test, or each in one of its own."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.kills.server import free_port
from tests.server.conftest import Cluster
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import hosted
from tests.server.test_routes import Server
from tests.waiting import next_line, wait_until

from cookhouse.server.leases.leases import Leases
from cookhouse.server.settings import Settings
from cookhouse.server.storage.store.store import Store

SETTINGS = Settings(sweep_seconds=3600.0, long_poll_seconds=10.0)
SERVE = Path(__file__).parent / "serve_shared.py"


class Shared:
    """What servers share, and these servers."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.database = database
        self.num_lost = 0
        self._count = 0
        self._stack = ExitStack()

    def new_state_dir(self) -> Path:
        self._count += 1
        return self.folder / f"server-{self._count}"

    @contextlib.contextmanager
    def server(
        self,
        settings: Settings = SETTINGS,
        make_engine: Callable[[], FakeEngine] = FakeEngine,
        url: str | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> Iterator[Server]:
        """One more server, in this process. `url`: where it says that it is; `sources` are for `BaseModels.fill`."""
        port, state_dir, engine = free_port(), self.new_state_dir(), make_engine()
        state_dir.mkdir()
        store = Store(self.database, is_shared=True)
        url = url or f"http://127.0.0.1:{port}"
        leases = Leases(store, url=url, folder=self.folder / "shared", on_lost=self._lose)
        with (
            hosted(state_dir, lambda: engine, settings, sources, port=port, store=store, leases=leases) as host,
            contextlib.closing(Server(host, engine)) as server,
        ):
            yield server

    def _lose(self) -> None:
        self.num_lost += 1


class Process:
    """A server in a process of its own, and one tenant's connection to it."""

    def __init__(self, shared: Shared, *words: str, port: int | None = None) -> None:
        self.port = port or free_port()
        command = [
            sys.executable,
            str(SERVE),
            str(shared.new_state_dir()),
            str(shared.folder / "shared"),
            shared.database,
        ]
        self.process = subprocess.Popen(
            [*command, str(self.port), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self.errors = ""
        self._reading: list[threading.Thread] = []

    def wait(self) -> "Process":
        """Until it serves."""
        self.url = next_line(self.process).strip()
        assert self.url, self.process.communicate()[1]
        self._reading = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._reading:
            thread.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def end(self) -> int:
        """The exit code, once it has ended."""
        code = self.process.wait(60)
        for thread in self._reading:
            thread.join(10)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._reading:
            thread.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


Start = Callable[..., Process]


@pytest.fixture
def shared(tmp_path: Path, postgresql: Cluster) -> Shared:
    (tmp_path / "shared").mkdir()
    return Shared(tmp_path, postgresql.new())


@pytest.fixture
def start(shared: Shared) -> Iterator[Start]:
    """Starts servers in processes of their own, which are killed when the test ends."""
    processes: list[Process] = []

    def one(*words: str, **options: Any) -> Process:
        processes.append(Process(shared, *words, **options))
        return processes[-1]

    yield one
    for process in processes:
        process.close()


def leases_of(server: Server) -> Leases:
    leases = server.host.service.leases
    assert leases is not None
    return leases


def knows_others(server: Server, number: int) -> bool:
    return len(leases_of(server).others()) == number


def knows_another(server: Server) -> bool:
    return knows_others(server, 1)


@pytest.fixture
def two(shared: Shared) -> Iterator[tuple[Server, Server]]:
    """Two servers that know of each other."""
    with shared.server() as first, shared.server() as second:
        wait_until(lambda: all(knows_another(server) for server in (first, second)))
        yield first, second
