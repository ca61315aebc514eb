"""The process that runs programs: it has Python and common modules loaded, and forks a child for each run.

A run ends when its first process does; whatever else it started is killed then, its scratch folder emptied, and only
then is the report sent. What cannot be cleaned ends the worker, and the pool starts another.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import kernel, namespaces, program
from .confinement import Confinement
from .execution import ForkedProgram, memory_above, resident_bytes
from .frames import receive_frame, send_frame
from .modules import load_modules

# What solutions of programming problems import, loaded once. Not threading, nor what imports it (queue, subprocess):
# each fork would then spend 0.3 ms on making it fit for use.
_PRELOADED = (
    *("array", "bisect", "cmath", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator"),
    *("random", "re", "statistics", "string", "struct", "textwrap", "time", "traceback", "typing"),
)
_FIRST_UNUSED_USER = 3_000_000


def main() -> None:
    """Serve the socket named by the first argument, isolated as the second (JSON) says, until its other end closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = json.loads(sys.argv[2])
    try:
        zygote = Zygote(control, settings)
    except OSError as error:
        send_frame(control, {"ready": False, "error": str(error)})
        return
    confinement = zygote.confinement
    facts = {"has_own_user": confinement.user is not None, "has_filter": confinement.has_filter}
    send_frame(control, {"ready": True, "facts": facts})
    with contextlib.suppress(EOFError, ConnectionError):
        zygote.serve()


class Zygote:
    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._method = settings["isolation_method"]
        self._modules: dict[str, str] = {}
        self._disk_bytes = settings["disk_bytes"]
        self._folder = settings["folder"]
        self._is_host_root = settings["is_root"]
        for name in (*_PRELOADED, *settings["preload"]):
            importlib.import_module(name)
        own = [str(Path(path)) for path in namespaces.python_paths()]
        sys.path[:] = [path for path in sys.path if any(Path(path).is_relative_to(prefix) for prefix in own)]
        self.confinement = self._isolate()
        program.prepare(
            {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": self._folder,
                "TMPDIR": self._folder,
                "LANG": "C.UTF-8",
            }
        )
        self._load(settings["modules"])
        gc.disable()
        gc.freeze()
        self._baseline = resident_bytes(os.getpid())

    def serve(self) -> NoReturn:
        while True:
            header, fds = receive_frame(self._control)
            if "run" in header:  # anything else is a request to stop what has already ended
                self._run(header, fds)

    def _run(self, header: dict[str, Any], fds: list[int]) -> None:
        self._load(header["modules"])
        execution = ForkedProgram(header["run"], self._control)
        execution.start(fds, confinement=self.confinement, folder=self._folder)
        execution.watch(self._memory_in_use)
        self._end_all(execution)
        self._empty_folder()
        send_frame(self._control, execution.report())

    def _load(self, modules: dict[str, str]) -> None:
        """Modules of the pool's owner: run once, and then part of every fork."""
        changed = {name: text for name, text in modules.items() if self._modules.get(name) != text}
        load_modules(changed)
        self._modules.update(changed)

    def _isolate(self) -> Confinement:
        is_linux = sys.platform == "linux"
        user = None
        if self._method == "namespaces":
            namespaces.enter()
            namespaces.build_root(self._folder, self._disk_bytes)
            namespaces.forbid_more()
            user = namespaces.NOBODY if os.getuid() == 0 else None
            self._folder = namespaces.SCRATCH
        elif self._method == "process" and is_linux:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            user = _unused_user() if os.getuid() == 0 else None
            if user is not None:
                os.chown(self._folder, user, user)
        if is_linux:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # programs of the same user may not look into this process
        # Root has no such limit.
        is_counted = user is not None or (self._method != "process" and not self._is_host_root)
        return Confinement(user=user, has_process_namespace=self._method != "process", are_processes_counted=is_counted)

    def _memory_in_use(self) -> int:
        return memory_above(self._baseline) if self.confinement.has_process_namespace else 0

    def _end_all(self, execution: ForkedProgram) -> None:
        """Kill and wait for every process of the run."""
        while True:
            if self.confinement.has_process_namespace:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)  # spares this process, which is the namespace's first
            else:
                _kill_descendants(execution.pid, self.confinement.user)
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            if pid == execution.pid:
                execution.note_exit(status)

    def _empty_folder(self) -> None:
        if not os.listdir(self._folder):  # noqa: PTH208
            return
        if self._method == "namespaces":
            namespaces.renew_scratch(self._disk_bytes)
            return
        folders = [entry.path for entry in os.scandir(self._folder) if entry.is_dir(follow_symlinks=False)]
        for entry in os.scandir(self._folder):
            if entry.path not in folders:
                Path(entry.path).unlink()
        if folders:  # these commands manage folders nested thousands deep, or without rights
            os.spawnv(os.P_WAIT, "/bin/chmod", ["chmod", "-fR", "u+rwx", *folders])
            if os.spawnv(os.P_WAIT, "/bin/rm", ["rm", "-rf", *folders]) != 0:
                raise OSError(f"{self._folder} could not be emptied")


def _unused_user() -> int | None:
    """A user that owns nothing and that no other worker has; None if such a user could not read Python's library."""
    user = _FIRST_UNUSED_USER + os.getpid() % 1_000_000
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    return user if _as_user(user, lambda: os.listdir(library)) else None  # noqa: PTH208


def _as_user(user: int, action: Callable[[], object]) -> bool:
    """Do something in a fork that has become `user`; whether it could."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            action()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _kill_descendants(leader: int, user: int | None) -> None:
    """Kill what a program started, where no process namespace holds it together."""
    if user is not None:
        _as_user(user, lambda: os.kill(-1, signal.SIGKILL))  # all of that user's processes, and no others
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found
