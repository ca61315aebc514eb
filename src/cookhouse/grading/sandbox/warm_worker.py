"""A worker process, seen from the pool: started once, then asked to run one program after another."""

import contextlib
import dataclasses
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cookhouse.errors import ServiceError
from cookhouse.grading.sandbox.isolation import IsolationMethod, describe
from cookhouse.grading.sandbox.sandbox import Execution, ExecutionOutcome, Program
from cookhouse.grading.sandbox.worker.frames import receive_frame, send_frame

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


_PACKAGE = Path(__file__).parent / "worker"
_START_SECONDS = 30.0
_GRACE_SECONDS = 5.0  # beyond a run's own limit, before the worker is given up
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")


class WorkerEndedError(ServiceError):
    """The worker's process is gone: something killed it, or it could not clean up after a program."""


class WarmWorker:
    """Not for two threads at once, except `stop` and `kill`. Raises ServiceError where the process cannot start."""

    def __init__(
        self, method: IsolationMethod, disk_bytes: int, preload: Sequence[str], modules: Mapping[str, str]
    ) -> None:
        self._method = method
        self._folder = tempfile.mkdtemp(prefix="cookhouse-sandbox-")
        self._sending = threading.Lock()
        self._control, theirs = socket.socketpair()
        settings = {
            "isolation_method": method,
            "folder": self._folder,
            "is_root": os.getuid() == 0,
            "disk_bytes": disk_bytes,
            "preload": list(preload),
            "modules": dict(modules),
            "path": str(_PACKAGE.parent),
        }
        code = f"import sys; sys.path.insert(0, {settings['path']!r}); import worker.zygote; worker.zygote.main()"
        command = [sys.executable, "-s", "-P", "-B", "-c", code, str(theirs.fileno()), json.dumps(settings)]
        if method is IsolationMethod.BUBBLEWRAP:
            command = bubblewrap_command(command, self._folder, _PACKAGE, disk_bytes)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LANG": "C.UTF-8"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            theirs.close()
            self._wait_until_ready(method)
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, method: IsolationMethod) -> None:
        self._control.settimeout(_START_SECONDS)
        try:
            ready, _ = receive_frame(self._control)
        except (OSError, EOFError) as error:
            raise ServiceError(f"a sandbox worker isolated by {method} did not start: {error}") from error
        if not ready["ready"]:
            raise ServiceError(f"a sandbox worker isolated by {method} did not start: {ready['error']}")
        self.isolation = describe(method, **ready["facts"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, program: Program, peer: socket.socket | None = None) -> None:
        """Begin a run; `peer` becomes the program's descriptor 3. WorkerEndedError if the worker died: close it."""
        self._streams = Streams(program.limits.output_bytes)
        header: dict[str, Any] = {"run": dataclasses.asdict(program.limits), "modules": dict(program.modules)}
        given = [holding(program.source.encode(errors="surrogatepass")), holding(program.stdin)]
        fds = [*given, *self._streams.writers, *([] if peer is None else [peer.fileno()])]
        self._control.settimeout(_GRACE_SECONDS)
        try:
            with self._sending:
                send_frame(self._control, header, fds)
        except OSError as error:
            self._streams.close()
            raise WorkerEndedError(f"a sandbox worker ended: {error}") from error
        finally:
            for fd in (*given, *self._streams.writers):
                os.close(fd)

    def finish(self, program: Program) -> Execution:
        """Wait for the run's end. Raises WorkerEndedError if the worker dies; then close it."""
        self._control.settimeout(_GRACE_SECONDS)
        try:
            self._streams.read_until(self._control, program.limits.wall_seconds + _GRACE_SECONDS, self.stop)
            report, _ = receive_frame(self._control)
            stdout, stderr = self._streams.read_rest()
        except (OSError, EOFError) as error:
            raise WorkerEndedError(f"a sandbox worker ended during a run: {error}") from error
        finally:
            self._streams.close()
        end = "output" if self._streams.is_over else report["end"]
        return Execution(
            outcome=_outcome(end, report["status"], stderr),
            status=report["status"] if end is None else None,
            stdout=stdout,
            stderr=stderr,
            seconds=report["seconds"],
            is_truncated=self._streams.is_over,
        )

    def stop(self) -> None:
        """End the run in progress, if there is one; the worker stays warm. From any thread."""
        with self._sending, contextlib.suppress(OSError):
            send_frame(self._control, {"stop": True})

    def close(self) -> None:
        """Kill the worker with all it runs, and remove its folder."""
        self._control.close()
        if hasattr(self, "_process"):
            if self._method is IsolationMethod.PROCESS:  # it ends what it runs; otherwise nobody would
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_SECONDS)
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _outcome(end: str | None, status: int, stderr: bytes) -> ExecutionOutcome:
    if end is not None:
        ends = {
            "timeout": ExecutionOutcome.TIMEOUT,
            "memory": ExecutionOutcome.MEMORY,
            "output": ExecutionOutcome.OUTPUT,
        }
        return ends.get(end, ExecutionOutcome.STOPPED)
    if status == 0:
        return ExecutionOutcome.OK
    if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return ExecutionOutcome.MEMORY
    if status == -24:  # SIGXCPU
        return ExecutionOutcome.TIMEOUT
    return ExecutionOutcome.KILLED if status < 0 else ExecutionOutcome.NONZERO_EXIT


def bubblewrap_command(command: Sequence[str], folder: str, package: Path, disk_bytes: int) -> list[str]:
    """`command` as process 1 of its own namespaces, seeing Python, system libraries and the scratch `folder` alone."""
    arguments = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all",
        "--as-pid-1",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]
    executable = Path(sys.executable).resolve().parents[1]
    for path in (*_SYSTEM, sys.base_prefix, sys.prefix, str(executable), str(package)):
        if Path(path).is_symlink():
            arguments += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(disk_bytes), "--tmpfs", folder, "--chdir", folder]
    return [*arguments, *command]
