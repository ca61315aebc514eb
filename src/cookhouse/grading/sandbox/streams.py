"""Input and output of a program, held by the pool: what a worker saw, later forks could find in their memory."""

import os
import select
import socket
import tempfile
import time
from collections.abc import Callable

_READ_BYTES = 1 << 16
_SHORT_MILLISECONDS = 5
_READ_ERRORS = 64


def holding(data: bytes) -> int:
    """A descriptor from which `data` can be read, of a file without a name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("sandbox")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with os.fdopen(fd, "wb", closefd=False) as writer:
        writer.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Streams:
    """A program's standard output and error: pipes, of which `max_bytes` each are kept. `is_over` once there was more
    output, or `_READ_ERRORS` times as many errors: judges do not read these, so that what a program says of its work
    does not end it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.is_over = False
        self._max_bytes = max_bytes
        pipes = [os.pipe(), os.pipe()]
        self.writers = [writer for _, writer in pipes]
        self._data = {reader: bytearray() for reader, _ in pipes}
        self._left = {reader: max_bytes * times for (reader, _), times in zip(pipes, (1, _READ_ERRORS), strict=True)}
        for reader in self._data:
            os.set_blocking(reader, False)

    def read_until(self, control: socket.socket, timeout_seconds: float, stop: Callable[[], None]) -> None:
        """Read until `control` has something to say; `stop` is called once there is too much. TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        poll = select.poll()
        poll.register(control.fileno(), select.POLLIN)
        if poll.poll(_SHORT_MILLISECONDS):  # most runs end before pipes fill; waking up for each piece costs more
            return
        for fd in self._data:
            poll.register(fd, select.POLLIN)
        while (remaining := deadline - time.monotonic()) > 0:
            ready = [fd for fd, _ in poll.poll(remaining * 1000)]
            for fd in ready:
                if fd in self._data and not self._read(fd):
                    poll.unregister(fd)
                    if self.is_over:
                        stop()
            if control.fileno() in ready:
                return
        raise TimeoutError("no report within its time")

    def read_rest(self) -> list[bytes]:
        """Both streams, once nothing writes to them any more."""
        for fd in self._data:
            while self._read(fd):
                pass
        return [bytes(data) for data in self._data.values()]

    def close(self) -> None:
        for reader in self._data:
            os.close(reader)
        self._data.clear()

    def _read(self, fd: int) -> bool:
        """Take what is there; False at the end, where nothing is there now, and beyond the limit."""
        if self._left[fd] < 0:
            return False
        try:
            part = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        data = self._data[fd]
        data += part[: self._max_bytes - len(data)]
        self._left[fd] -= len(part)
        self.is_over = self.is_over or self._left[fd] < 0
        return bool(part) and self._left[fd] >= 0
