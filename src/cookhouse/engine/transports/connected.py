"""A worker at the other end of a socket, in a process that ends with this one.

server                                                           the other end: `child_process.py`
submit ── encode ──► Sender ── socket: options, commands, end ──► reads in a thread of its own
events ◄── event loop ◄─────── socket: events, Logged, Lost ────  tells from the worker's threads
"""

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Protocol, get_args

from cookhouse.engine.contract import Command, Event, Failed, Failure, Lost, WorkerOptions
from cookhouse.engine.transports.messages import MessageError, Pieces, Receiver, Sender, encode

_STDERR = 2
_DEATH_SECONDS = 1.0
"""From the end of its socket to the end of a process; then it is killed."""
_MAX_MESSAGES = 64
"""Read at a time, so that other work of the event loop gets its turn."""
_EVENTS = get_args(Event)


class Process(Protocol):
    """Process at the other end; a `subprocess.Popen` is one."""

    def kill(self) -> None:
        """End it, whatever it does."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; raises `subprocess.TimeoutExpired`."""


class Connected:
    """Implements `Worker`. `begin` sends the other end its role."""

    def __init__(self, connection: socket.socket, process: Process, name: str = "") -> None:
        """`name` is that of the process in words, where it is another's than the worker's."""
        self._socket = connection
        self._process = process
        self._sender = Sender(self._socket)
        self._receiver = Receiver(self._socket, waits=False)
        self._name = name
        self._worker = ""
        self._events: list[Event] = []
        self._has_events = asyncio.Event()
        self._is_over = False
        """True once no more events will come."""
        self._ending: asyncio.Task[None] | None = None
        self._is_closing = False

    def begin(self, options: WorkerOptions, engine_options: Mapping[str, Any]) -> None:
        """Have it make its engine, with options of plain values, and take commands. What it says goes to our stderr."""
        self._worker = options.worker
        with contextlib.suppress(OSError):  # it has died, which reading will tell
            # Our stderr may have become another file since the process started.
            socket.send_fds(self._socket, [b"\0"], [_STDERR])
        self._sender.send(encode(({**asdict(options), "folder": str(options.folder)}, dict(engine_options))))

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Worker`."""
        pieces: Pieces = []
        for command in commands:
            try:
                pieces += encode(command)
            except Exception as error:
                self._put(Failed(command_id=command.command_id, failure=Failure.of(error)))
        self._sender.send(pieces)

    async def events(self) -> Sequence[Event]:
        """See `Worker`. Always from the same event loop."""
        if self._ending is None:
            self._listen()
        await self._has_events.wait()
        taken, self._events = self._events, []
        if not self._is_over:
            self._has_events.clear()
        return taken

    async def close(self, seconds: float) -> bool:
        """See `Worker`. A process that has not ended by then is killed."""
        self._is_closing = True
        ending = self._listen()
        if self._worker:
            self._sender.send(encode(None))
        else:
            self._process.kill()  # it has nothing to end in order
        done, _ = await asyncio.wait([ending], timeout=seconds)
        if not done:
            self._process.kill()
            await ending
        return bool(done)

    def _listen(self) -> asyncio.Task[None]:
        """Read from now on; the task ends with the process."""
        if self._ending is None:
            loop = asyncio.get_running_loop()
            end: asyncio.Future[str] = loop.create_future()
            loop.add_reader(self._socket, self._read, end)
            self._ending = loop.create_task(self._end(end))
        return self._ending

    def _read(self, end: asyncio.Future[str]) -> None:
        """Take what has come; the future gets the reason why nothing more will."""
        reason = ""
        try:
            for message in islice(self._receiver.read(), _MAX_MESSAGES):
                if not isinstance(message, _EVENTS):
                    raise MessageError(f"{type(message).__name__} is no event")
                if isinstance(message, Lost):
                    self._lose(message.reason, message.failure)
                else:
                    self._put(message)
            return
        except EOFError:
            pass
        except MessageError as error:
            self._process.kill()
            reason = f"what it said is no message: {error}"
        asyncio.get_running_loop().remove_reader(self._socket)
        end.set_result(reason)

    async def _end(self, end: asyncio.Future[str]) -> None:
        reason = await end
        try:
            code = await asyncio.to_thread(self._process.wait, _DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            reason = reason or "it closed its socket"
            self._process.kill()
            code = await asyncio.to_thread(self._process.wait)
        self._sender.close()
        self._socket.close()
        if not self._is_closing:
            whose = f"{self._name}: " if self._name else ""
            self._lose(whose + (reason or _death(code)))
        self._is_over = True
        self._has_events.set()

    def _lose(self, reason: str, failure: Failure | None = None) -> None:
        """Tell of its end, unless that has been told."""
        self._put(Lost(worker=self._worker, reason=reason, failure=failure))
        self._is_over = True

    def _put(self, event: Event) -> None:
        if not self._is_over:
            self._events.append(event)
            self._has_events.set()


def _death(code: int) -> str:
    """Why a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = "out of memory?" if -code == signal.SIGKILL else signal.strsignal(-code)
    return f"killed by signal {-code} ({name})"
