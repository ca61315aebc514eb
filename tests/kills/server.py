"""A server in a process of its own that is started again whenever it dies, with the same address and folder."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from tests.waiting import wait_until

KEYS = ("tml-killed-0001", "tml-killed-0002")
START_SECONDS = 180.0
OF_SESSIONS = ("states", "samplers", "loads", "journal", "snapshots")
"""Folders of a state folder that hold nothing without a session."""
_LEFT_SECONDS = 30.0
"""Until what a server leaves behind is taken for forgotten."""
_MARK = "COOKHOUSE_KILLED_SERVER"
"""In the environment of a server, and so of all that it starts: its state folder."""
_WORKER_UP = re.compile(r'^cookhouse_worker_up\{worker="(\w+)"\} 1', re.MULTILINE)
_FAILED_START_SECONDS = 0.5
"""Until the next try, where one ended by itself."""


def free_port() -> int:
    """One below those that connections are given, so that nobody takes it while no server listens."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class KeptServer:
    """Runs while a `with` lasts."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        *,
        module: Sequence[str] = ("cookhouse.server",),
        find_engines: Callable[[int], list[int]] | None = None,
        is_shared: bool = False,
    ) -> None:
        """`options` are those of `python -m cookhouse.server`; `module` starts it, with its own words before.
        `find_engines` gives ids of the engines of a server's process; default: `engines_of`. `is_shared`: it is to be
        told where others reach it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.state_dir = folder / "state"
        self.log = folder / "server.log"
        self.num_starts = 0
        self.exit_codes: list[int] = []
        self.port = free_port()
        self._command = [sys.executable, "-m", *module, "--port", str(self.port)]
        self._command += ["--state-dir", str(self.state_dir), *options]
        if is_shared:
            self._command += ["--server-url", self.url]
        self._find_engines = find_engines or engines_of
        self._is_stopping = False
        self._process: subprocess.Popen[bytes]
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def servers(self) -> "list[KeptServer]":
        """As of several that share."""
        return [self]

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        self._start()
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        with suppress(ProcessLookupError):
            self._process.kill()
        self._keeper.join()

    def engines(self) -> list[int]:
        """Ids of the engines that the running server has."""
        return self._find_engines(self.pid)

    def kill(self) -> int:
        """Kill the server, whatever it is doing; how often one has been started before."""
        count = self.num_starts
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return count

    def terminate(self) -> int:
        """Ask the server to stop; how often one has been started before."""
        count = self.num_starts
        os.kill(self.pid, signal.SIGTERM)
        return count

    def stop(self) -> None:
        """Have it end as it is told, and not start again."""
        self._is_stopping = True
        self.terminate()
        self._keeper.join()

    def kill_workers(self, places: Sequence[int]) -> int:
        """Kill engines by their places among those that run now; how many it were."""
        engines = self.engines()
        victims = [engines[place] for place in places if place < len(engines)]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(victims)

    def ask(self, key: str, method: str, path: str, content: object = None) -> httpx.Response:
        """What the server answers a tenant, once it is up; raises where it refuses, or dies meanwhile."""
        self.wait_until_ready()
        headers = {"X-API-Key": key}
        answer = httpx.request(method, self.url + path, json=content, headers=headers, timeout=60, trust_env=False)
        return answer.raise_for_status()

    def workers(self) -> list[str]:
        """Names of those that are up."""
        return _WORKER_UP.findall(self.ask(KEYS[0], "GET", "/metrics").text)

    def drain_worker(self, seconds: float) -> str:
        """Drain a worker that is up, wait until it has ended, and add another; what became of it."""
        num_starts, name = self.num_starts, self.workers()[0]
        try:
            self.ask(KEYS[0], "POST", f"/api/v1/workers/{name}/drain", {"seconds": seconds})
            wait_until(lambda: self.num_starts > num_starts or name not in self.workers())
            if self.num_starts == num_starts:
                wait_until(lambda: not (self.state_dir / "snapshots" / name).exists())
                self.ask(KEYS[0], "POST", "/api/v1/workers", {})
        except httpx.HTTPError as error:
            return f"{name} was not drained: {error}"
        return f"{name} drained"

    def end_sessions(self, sessions: Mapping[str, str]) -> None:
        """End those of keys, as their clients may."""
        for key, session_id in sessions.items():
            self.ask(key, "POST", f"/api/v1/sessions/{session_id}/finish", {"reason": {"type": "success"}})

    def left_files(self) -> list[str]:
        """What the running server still has of sessions, some time after all have ended; its start would sweep that."""
        return files_in(self.state_dir)

    def left_processes(self) -> list[str]:
        """Of all servers that there have been, once the last one has ended: what still runs some time after it."""
        deadline = time.monotonic() + _LEFT_SECONDS
        while True:
            found = [f"process {pid}: {words}" for pid, words in processes_of(self.state_dir)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def wait_for_start(self, count: int) -> None:
        """Wait until more servers than so many have been started."""
        deadline = time.monotonic() + START_SECONDS
        while self.num_starts <= count:
            assert time.monotonic() < deadline, "it was not started again"
            time.sleep(0.005)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200:
                    return
            assert time.monotonic() < deadline, f"no server became ready; its log:\n{self.tail()}"
            time.sleep(0.02)

    def checkpoints(self) -> Sequence[StoredCheckpoint]:
        """All that were saved."""
        return stored_checkpoints(self.state_dir)

    def tail(self, num_lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-num_lines:])

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
        environment |= {"COOKHOUSE_API_KEYS": ",".join(KEYS), "OMP_NUM_THREADS": "1"}
        environment[_MARK] = str(self.state_dir)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self.num_starts += 1

    def _keep(self) -> None:
        while True:
            self.exit_codes.append(self._process.wait())
            if self._is_stopping:
                return
            if self.exit_codes[-1] != -signal.SIGKILL:
                time.sleep(_FAILED_START_SECONDS)
            self._start()


def files_in(state_dir: Path) -> list[str]:
    """Files of sessions that are still there some time after all have ended, and checkpoints that were not finished."""
    with suppress(AssertionError):
        wait_until(lambda: not _files_in(state_dir), _LEFT_SECONDS)
    return _files_in(state_dir)


def _files_in(state_dir: Path) -> list[str]:
    files = [file for name in OF_SESSIONS for file in sorted(state_dir.glob(f"{name}/**/*")) if file.is_file()]
    unfinished = sorted(state_dir.glob("checkpoints/.*"))
    return [str(path.relative_to(state_dir)) for path in (*files, *unfinished)]


def engines_of(server: int) -> list[int]:
    """Ids of the engines that a server's process has started, the oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == server and b"cookhouse.engine" in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return sorted(found)


def processes_of(state_dir: Path) -> list[tuple[int, str]]:
    """Ids and commands of the processes that come from servers of a state folder."""
    mark = f"{_MARK}={state_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(entry.name), words.strip()))
    return found
