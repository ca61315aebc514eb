"""One run of a program: fork, watch, and end within its limits. What it reads and writes does not pass through here."""

import contextlib
import os
import select
import socket
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


class ForkedProgram:
    """A forked program. `end` says why it was ended, where it did not end by itself."""

    def __init__(self, limits: dict[str, Any], control: socket.socket) -> None:
        self.end: str | None = None
        self._limits = limits
        self._control = control
        self._status: int | None = None
        self._started = 0.0
        self._seconds = 0.0

    def start(self, fds: list[int], *, confinement: Confinement, folder: str) -> None:
        """Fork; the child never returns. `fds`: source, input, output, errors, and possibly a peer's socket."""
        self._started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                source = _read_all(fds[0])
                for target, fd in enumerate(fds[1:]):  # 3, the peer's, last: the others may have that number
                    os.dup2(fd, target)
                os.setsid()
                confinement.apply(self._limits, keep=[PEER_FD][: len(fds) - 4])
                os.chdir(folder)
            except BaseException:
                _fail()
            program.run(source)
        for fd in fds:
            os.close(fd)

    def watch(self, memory_in_use: Callable[[], int]) -> None:
        """Wait until the program ends, or must be ended: `end` is then set. Its processes may still live."""
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        exit_fd = _open_pidfd(self.pid)
        if exit_fd is not None:
            poll.register(exit_fd, select.POLLIN)
        deadline = self._started + self._limits["wall_seconds"]
        next_look = self._started + _WATCH_SECONDS
        while self.end is None and not self._has_exited():
            now = time.monotonic()
            if now >= deadline:
                self.end = "timeout"
            elif now >= next_look:
                next_look = now + _WATCH_SECONDS
                if memory_in_use() > self._limits["memory_bytes"]:
                    self.end = "memory"
            wait = min(deadline, next_look) - now if exit_fd is not None else 0.002
            if any(fd == self._control.fileno() for fd, _ in poll.poll(max(0.0, wait) * 1000 + 1)):
                self.end = "stopped"
        self._seconds = time.monotonic() - self._started
        if exit_fd is not None:
            os.close(exit_fd)

    def report(self) -> dict[str, Any]:
        """Report on its end, once nothing of the program lives."""
        status = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return {"end": self.end, "status": status, "seconds": self._seconds}

    def note_exit(self, status: int) -> None:
        """The program's own process was waited for by someone else."""
        if self._status is None:
            self._status = status

    def _has_exited(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._status = status
        return bool(pid)


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


def _read_all(fd: int) -> str:
    """Text of a file, read by a fork: what the worker itself held, later programs could find in their memory."""
    data = bytearray()
    while part := os.read(fd, _READ_BYTES):
        data += part
    return data.decode(errors="surrogatepass")


def _open_pidfd(pid: int) -> int | None:
    """None where the system has none; the child is then asked after every two milliseconds."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _fail() -> NoReturn:
    os.write(2, traceback.format_exc().encode())
    os._exit(125)
