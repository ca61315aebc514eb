"""One run of a program: fork, feed, watch, and collect what it wrote, within its limits."""

import contextlib
import os
import select
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import program
from .confinement import Confinement

PEER_FD = 3
_WATCH_SECONDS = 0.05
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES = 1 << 16


class Execution:
    """A forked program and its two output pipes. `end` says why it was ended, where it did not end by itself."""

    def __init__(self, limits: dict[str, Any], control: socket.socket) -> None:
        self.end: str | None = None
        self._limits = limits
        self._control = control
        self._outputs: dict[int, bytearray] = {}
        self._status: int | None = None
        self._started = 0.0
        self._seconds = 0.0

    def start(
        self,
        source: str,
        stdin: bytes,
        peer: int | None,
        *,
        confinement: Confinement,
        folder: str,
    ) -> None:
        """Fork. The child never returns from here."""
        given = _holding(stdin, folder)
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        self._started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _take_descriptors(given, out_writer, err_writer, peer)
                os.setsid()
                confinement.apply(self._limits, keep=() if peer is None else (PEER_FD,))
                os.chdir(folder)
            except BaseException:
                _fail()
            program.run(source)
        for fd in (given, out_writer, err_writer, peer):
            if fd is not None:
                os.close(fd)
        for fd in (out_reader, err_reader):
            os.set_blocking(fd, False)
            self._outputs[fd] = bytearray()

    def watch(self, memory_in_use: Callable[[], int]) -> None:
        """Wait until the program ends, or must be ended: `end` is then set. Its processes may still live."""
        poll = select.poll()
        for fd in (*self._outputs, self._control.fileno()):
            poll.register(fd, select.POLLIN)
        exit_fd = _open_pidfd(self.pid)
        if exit_fd is not None:
            poll.register(exit_fd, select.POLLIN)
        deadline = self._started + self._limits["wall_seconds"]
        next_look = self._started + _WATCH_SECONDS
        try:
            while self.end is None and not self._has_exited():
                now = time.monotonic()
                if now >= deadline:
                    self.end = "timeout"
                elif now >= next_look:
                    next_look = now + _WATCH_SECONDS
                    if memory_in_use() > self._limits["memory_bytes"]:
                        self.end = "memory"
                wait = min(deadline, next_look) - now if exit_fd is not None else 0.002
                for fd, _ in poll.poll(max(0.0, wait) * 1000 + 1):
                    if fd == self._control.fileno():
                        self.end = "stopped"
                    elif fd in self._outputs and not self._read(fd):
                        poll.unregister(fd)
        finally:
            self._seconds = time.monotonic() - self._started
            if exit_fd is not None:
                os.close(exit_fd)

    def collect(self) -> tuple[dict[str, Any], list[bytes]]:
        """The report and the outputs, once nothing of the program lives."""
        for fd in self._outputs:
            while self._read(fd):
                pass
            os.close(fd)
        outputs = list(self._outputs.values())
        allowed = self._limits["output_bytes"]
        report = {
            "end": self.end,
            "status": None if self._status is None else os.waitstatus_to_exitcode(self._status),
            "seconds": self._seconds,
            "truncated": [len(data) > allowed for data in outputs],
        }
        return report, [bytes(data[:allowed]) for data in outputs]

    def note_exit(self, status: int) -> None:
        """The program's own process was waited for by someone else."""
        if self._status is None:
            self._status = status

    def _has_exited(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._status = status
        return bool(pid)

    def _read(self, fd: int) -> bool:
        """Take what is there; False at the end, when nothing is there now, or when the limit is reached."""
        data = self._outputs[fd]
        if len(data) > self._limits["output_bytes"]:
            self.end = self.end or "output"
            return False
        try:
            part = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        data += part
        return bool(part)


def memory_above(baseline: int) -> int:
    """Resident bytes of all other processes of this process namespace, each beyond `baseline`, its share of ours."""
    own = os.getpid()
    total = 0
    for entry in os.listdir("/proc"):  # noqa: PTH208 - every 50 ms
        if entry.isdigit() and int(entry) != own:
            total += max(0, resident_bytes(entry) - baseline)
    return total


def resident_bytes(pid: int | str) -> int:
    """0 for a process that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def _holding(data: bytes, folder: str) -> int:
    """A descriptor from which `data` can be read: a pipe where it fits into one, else a file without a name."""
    if len(data) <= select.PIPE_BUF:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        return reader
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


def _open_pidfd(pid: int) -> int | None:
    """None where the system has none; the child is then asked after every two milliseconds."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _take_descriptors(given: int, out: int, err: int, peer: int | None) -> None:
    for source, target in ((given, 0), (out, 1), (err, 2), (peer, PEER_FD)):
        if source is not None:
            os.dup2(source, target)


def _fail() -> NoReturn:
    os.write(2, traceback.format_exc().encode())
    os._exit(125)
