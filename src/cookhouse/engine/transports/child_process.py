"""The other side of `child.py`: what runs in the process of a worker.

main thread     imports, makes the engine, and is the engine's own from then on
pipe            reads the socket, and ends the process with it: whatever the engine is doing, nobody is left to tell
"""

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from cookhouse.engine.contract import Command, Done, Event, Failed, Failure, Logged, Lost, WorkerOptions
from cookhouse.engine.transports.messages import MessageError, Pieces, Receiver, Sender, encode

_STDERR = 2
_log = logging.getLogger(__name__)

Tell = Callable[[Sequence[Event]], None]


class Running(Protocol):
    """A worker without what carries its events: told by a callback, it runs in the thread that calls `run`."""

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Worker`."""

    def run(self) -> None:
        """Make the engine and take turns until `stop`; it sends `Up` first, or `Lost`, as it does where it fails."""

    def stop(self) -> None:
        """End `run` after the present turn. From any thread."""


MakeRunning = Callable[[WorkerOptions, Mapping[str, Any], Tell], Running]


def run_child(descriptor: int, load: Callable[[], None], make: MakeRunning) -> int:
    """Be the child whose socket this is, until it is asked to end; returns the exit code once all has been sent.

    `load` imports, before it is known what the worker shall be.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # ends in order with the server, whom they are meant for, too
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    pipe = Pipe(socket.socket(fileno=descriptor))
    logging.getLogger().addHandler(LogTeller(pipe.tell))
    code = 0
    try:
        load()
        options, engine_options = pipe.options.result()
        running = make(options, engine_options, pipe.tell)
        pipe.feed(running)
        running.run()
    except Exception as error:
        pipe.tell([Lost.by(error)])
        code = 1
    pipe.flush()
    return code


class Feed:
    """Hands messages to what runs: also those that came before it did. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[Any] = []
        self._running: Running | None = None

    def start(self, running: Running) -> None:
        """Hand it what has come so far, and what comes."""
        with self._lock:
            self._running = running
            early, self._early = self._early, []
            for message in early:
                _hand(running, message)

    def put(self, message: Any) -> None:
        """Raises MessageError: it is no command, nor None, which is the end."""
        with self._lock:
            if self._running is None:
                self._early.append(message)
            else:
                _hand(self._running, message)


class Pipe:
    """The child's end of the socket."""

    def __init__(self, connection: socket.socket, end: Callable[[int], object] = os._exit) -> None:
        """`end` is called with an exit code, in the thread that reads, when nobody is left at the other end."""
        connection.set_inheritable(False)  # a compiler that outlives us would keep it open
        self._connection = connection
        self._end = end
        self._sender = Sender(connection)
        self._feed = Feed()
        self.options: Future[tuple[WorkerOptions, Mapping[str, Any]]] = Future()
        threading.Thread(target=self._read, name="pipe", daemon=True).start()

    def tell(self, events: Sequence[Event]) -> None:
        """Send events. From any thread; never waits."""
        self._sender.send(encode_events(events))

    def feed(self, running: Running) -> None:
        """Hand it what has come so far, and what comes."""
        self._feed.start(running)

    def flush(self) -> None:
        self._sender.flush()

    def close(self) -> None:
        """Hang up. The socket is closed by the thread that reads it."""
        self._sender.close()
        with contextlib.suppress(OSError):  # the other end has
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        try:
            _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
            for each in descriptors:
                os.dup2(each, _STDERR)
                os.close(each)
            messages = Receiver(self._connection, waits=True).read()
            options, engine_options = next(messages)
            self.options.set_result((WorkerOptions(**{**options, "folder": Path(options["folder"])}), engine_options))
            for message in messages:
                self._feed.put(message)
        except (EOFError, ConnectionError):
            self._leave(0)
        except BaseException:  # without this thread nothing would end the process
            _log.exception("the worker cannot be told what to do")
            self._sender.flush(1.0)
            self._leave(1)
        self._connection.close()

    def _leave(self, code: int) -> None:
        self._end(code)
        if not self.options.done():
            self.options.set_exception(EOFError("the other end has gone"))


def encode_events(events: Sequence[Event]) -> Pieces:
    """Their frames. In place of an answer that cannot cross, a failure does."""
    pieces: Pieces = []
    for event in events:
        try:
            pieces += encode(event)
        except Exception as error:
            _log.exception("an event cannot be told")
            if isinstance(event, Done):
                pieces += encode(Failed(command_id=event.command_id, failure=Failure.of(error)))
    return pieces


def _hand(running: Running, message: Any) -> None:
    if message is None:
        running.stop()
    elif isinstance(message, Command):
        running.submit([message])
    else:
        raise MessageError(f"{type(message).__name__} is no command")


class LogTeller(logging.Handler):
    """Tells records to the server."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell([Logged(name=record.name, level=record.levelno, message=self.format(record))])
        except Exception:
            self.handleError(record)
