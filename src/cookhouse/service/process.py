"""The process of an embedded server: started early, told later what to serve, and stopped.

    client                                    server, in a session of its own: Ctrl-C in the terminal does not reach it
    stdin socket, held open  ─────────────►   arguments, environment, lock and log, as soon as they are known; then
                                              a word has it drain, and EOF stop: a client that dies leaves no process
    stdout pipe              ◄─────────────   JSON lines: {"note": ...}, {"warning": ...}; {"url": ..., "engine": ...}
                                              once it answers
    <state_dir>/server.log   ◄─────────────   stderr, from when it has been told

It imports its libraries meanwhile, which takes as long as those of the client, and touches no folder.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cookhouse.errors import InputError, ServiceError

SERVER_COMMAND = (sys.executable, "-m", "cookhouse.server", "--wait")
_EOF_PATIENCE_SECONDS = 10.0
_TERMINATE_PATIENCE_SECONDS = 5.0
_INPUT_ERROR_EXIT = 2
_OWN_EXITS = (0, 1, _INPUT_ERROR_EXIT)
_WARNING = re.compile(r"\S+ \S+ WARNING [\w.]+: (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLog:
    """Lines that one server wrote to a log file: all from byte `start` on."""

    file: Path
    start: int

    def last_lines(self, count: int = 8) -> list[str]:
        return [line for line in self._lines() if line.strip()][-count:]

    def warnings(self) -> list[str]:
        """Its warnings, without time and place."""
        found = (_WARNING.match(line) for line in self._lines())
        return [match[1] for match in found if match]

    def _lines(self) -> list[str]:
        with self.file.open("rb") as text:
            text.seek(self.start)
            return text.read().decode("utf-8", errors="replace").splitlines()


class ServerProcess:
    """A server's process. `started_server` makes one."""

    def __init__(self, process: Process, stdin: socket.socket, early: IO[bytes]) -> None:
        """`early`: what it writes to stderr before it has a log."""
        self._process = process
        self._stdin = stdin
        self._early = early
        self._is_told = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def has_said_why(self) -> bool:
        """True if it has ended by itself, with an error of its own: the next one would, too."""
        return self.returncode in _OWN_EXITS

    def drain(self) -> None:
        """Ask it to answer what it has accepted and to end; one that has ended is left as it is."""
        with contextlib.suppress(OSError):
            self._stdin.sendall(b"drain\n")

    def kill(self) -> None:
        self._process.kill()

    async def serve(
        self,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str],
        lock: IO[bytes],
        log: IO[bytes],
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> tuple[str, str | None]:
        """Have it serve; return its URL and what its engine computes on. It holds `lock` from now on, and has `log` as
        stderr. What it has to say meanwhile and later is said, and warned of where it went wrong.

        Raises:
            InputError: it refused what it was given.
            ServiceError: it died before it was ready.
        """
        self._log = ServerLog(file=Path(log.name), start=os.fstat(log.fileno()).st_size)
        self._is_told = True
        message = json.dumps({"arguments": list(arguments), "environ": dict(environ)}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died: its stdout ends, too
            sent = socket.send_fds(self._stdin, [message], [lock.fileno(), log.fileno()])
            self._stdin.sendall(message[sent:])
        ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(ready, {"note": say, "warning": warn}))
        await asyncio.wait((ready, self._reading), return_when=asyncio.FIRST_COMPLETED)
        self._early.seek(0)
        log.write(self._early.read())
        log.flush()
        if not ready.done():
            await self._reading
            await self._process.wait()
            raise self._death("did not start")
        engine = ready.result().get("engine")
        return ready.result()["url"], engine if isinstance(engine, str) else None

    @property
    def log(self) -> ServerLog:
        """Of what it serves."""
        return self._log

    async def wait_for_death(self) -> InputError | ServiceError:
        """Wait until it ends by itself, and say how; the last lines of its log are in the message."""
        await self._process.wait()
        return self._death("died")

    async def stop(self) -> None:
        """Ask by EOF, then by SIGTERM, then kill; returns when the process is gone."""
        self._stdin.close()
        if not self._is_told and self.returncode is None:
            self._process.kill()  # it has touched nothing, and may be busy with an import
        for patience_seconds, harder in ((_EOF_PATIENCE_SECONDS, "terminate"), (_TERMINATE_PATIENCE_SECONDS, "kill")):
            try:
                await asyncio.wait_for(self._process.wait(), patience_seconds)
                break
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    getattr(self._process, harder)()
        await self._process.wait()
        if self._is_told:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def terminate(self) -> None:
        """For one that is loading a model, and does not look at its stdin."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    async def _read(self, ready: "asyncio.Future[dict[str, Any]]", hears: Mapping[str, Callable[[str], None]]) -> None:
        """Read stdout to its end: a full pipe would block the server. Lines that are not ours are skipped."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if not isinstance(told, dict):
                    continue
                for kind, hear in hears.items():
                    if isinstance(told.get(kind), str):
                        hear(told[kind])
                if isinstance(told.get("url"), str) and not ready.done():
                    ready.set_result(told)

    def _death(self, what: str) -> InputError | ServiceError:
        """Error for its exit: its own refusal is the caller's error, anything else is the service's."""
        lines = self._log.last_lines()
        code = self.returncode
        if code == _INPUT_ERROR_EXIT:
            return InputError(lines[-1].removeprefix("error: ") if lines else "the server refused its arguments")
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return ServiceError("\n  ".join([f"the embedded server {what} ({how})", *lines, f"its log: {self._log.file}"]))


@contextlib.asynccontextmanager
async def started_server(command: Sequence[str] = SERVER_COMMAND) -> AsyncIterator[ServerProcess]:
    """Start a server that serves nothing yet, and stop it on leaving, whatever it does then."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as early:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs.fileno(),
                stdout=PIPE,
                stderr=early,
                env=_environment(os.environ),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        server = ServerProcess(process, ours, early)
        try:
            yield server
        finally:
            await asyncio.shield(server.stop())


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The client's, without what names a service to it."""
    return {name: value for name, value in environ.items() if not name.startswith("TINKER_")}
