"""Giving up a program's rights: descriptors, resources, its user, capabilities, system calls."""

import dataclasses
import os
import resource
import sys
from collections.abc import Iterable
from typing import Any

from . import kernel, seccomp

_LIMITS = ("CPU", "AS", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confinement:
    """Confinement of the programs of one worker, beyond the worker's own isolation.

    Made in the worker, it confines what forks can inherit: the filter of system calls, which leaves to the worker
    itself what it does after its start.
    """

    user: int | None  # None: programs run as the worker does
    has_process_namespace: bool
    are_processes_counted: bool  # apart from those of the host
    is_linux: bool = sys.platform == "linux"
    has_filter: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_filter", self._install_filter())

    def _install_filter(self) -> bool:
        program = seccomp.build_filter() if self.is_linux else None
        if program is None:
            return False
        try:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            seccomp.install(program)
        except OSError:  # a kernel without filters; the pool says so
            return False
        return True

    def apply(self, limits: dict[str, Any], *, keep: Iterable[int]) -> None:
        """Confine this process, a fork; descriptors other than 0, 1, 2 and those in `keep` are closed."""
        _close_from_3(keep)
        _limit(limits, counts_processes=self.are_processes_counted or not self.has_filter)
        if self.user is not None:  # capabilities go with the user
            os.setgroups([])
            os.setresgid(self.user, self.user, self.user)
            os.setresuid(self.user, self.user, self.user)
        elif self.is_linux:
            kernel.drop_capabilities()
        if self.is_linux:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # the worker's is off; a program may read its own /proc/self
        if self.has_filter and not self.are_processes_counted:
            seccomp.install(seccomp.build_fork_filter())
        if self.has_filter and not self.has_process_namespace:
            seccomp.install(seccomp.build_host_filter())


def _close_from_3(keep: Iterable[int]) -> None:
    low = 3  # os.closerange(0, 0) closes everything
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 4096)


def _limit(limits: dict[str, Any], *, counts_processes: bool) -> None:
    """Processes that are not counted apart are forbidden by a filter: the limit would count all of the host's user."""
    cpu_seconds = int(limits["cpu_seconds"])
    values = (
        *(cpu_seconds, limits["memory_bytes"], limits["disk_bytes"], limits["open_files"], limits["processes"]),
        *(0, 0, 0),
    )
    for name, value in zip(_LIMITS, values, strict=True):
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None and (name != "NPROC" or counts_processes):
            _, ceiling = resource.getrlimit(kind)  # never above what the worker itself may
            hard = value + 1 if name == "CPU" else value  # at the soft limit a signal, at the hard one the end
            bounded = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
            resource.setrlimit(kind, (min(value, bounded), bounded))
