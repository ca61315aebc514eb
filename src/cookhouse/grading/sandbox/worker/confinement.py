"""What a forked child gives up before it runs a program: descriptors, resources, its user, system calls."""

import dataclasses
import os
import resource
import sys
from collections.abc import Iterable
from typing import Any

from . import kernel, seccomp


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confinement:
    """How the programs of one worker are confined beyond the worker's own walls."""

    user: int | None  # None: they run as the worker does
    has_process_namespace: bool
    is_linux: bool = sys.platform == "linux"

    def apply(self, limits: dict[str, Any], *, keep: Iterable[int]) -> None:
        """Confine this process; descriptors other than 0, 1, 2 and those in `keep` are closed."""
        _close_from_3(keep)
        _limit(limits)
        if self.user is not None:
            os.setgroups([])
            os.setresgid(self.user, self.user, self.user)
            os.setresuid(self.user, self.user, self.user)
        if self.is_linux:
            kernel.drop_capabilities()
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # the worker's is off; a program may read its own /proc/self
            program = seccomp.build_filter("any" if self.has_process_namespace else "self")
            if program is not None:
                seccomp.install(program)


def _close_from_3(keep: Iterable[int]) -> None:
    low = 3  # os.closerange(0, 0) closes everything
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 4096)


def _limit(limits: dict[str, Any]) -> None:
    cpu_seconds = int(limits["cpu_seconds"])
    for name, soft, hard in (
        ("RLIMIT_CPU", cpu_seconds, cpu_seconds + 1),
        ("RLIMIT_AS", limits["memory_bytes"], limits["memory_bytes"]),
        ("RLIMIT_FSIZE", limits["disk_bytes"], limits["disk_bytes"]),
        ("RLIMIT_NOFILE", limits["open_files"], limits["open_files"]),
        ("RLIMIT_NPROC", limits["processes"], limits["processes"]),
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_MEMLOCK", 0, 0),
        ("RLIMIT_MSGQUEUE", 0, 0),
    ):
        if hasattr(resource, name):
            _set(getattr(resource, name), soft, hard)


def _set(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:  # never above what the worker itself may
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))
