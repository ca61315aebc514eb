"""Giving up a program's rights: descriptors, resources, its user, capabilities, system calls.

System calls that no program needs, and that reach other processes, the network or the kernel, are refused by a seccomp
filter, in classic BPF as in linux/seccomp.h.
"""

import ctypes
import dataclasses
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import kernel

_LIMITS = ("CPU", "AS", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE")
_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_NAMESPACE_FLAGS = 0x7E020000
_CLONE_THREAD = 0x10000
_X32 = 0x40000000
_SECCOMP_MODE_FILTER = 2
_AF_UNIX = 1


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
        program = _build_filter() if self.is_linux else None
        if program is None:
            return False
        try:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            _install(program)
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
            _install(_build_fork_filter())
        if self.has_filter and not self.has_process_namespace:
            _install(_build_host_filter())


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


class _Machine(NamedTuple):
    """System call numbers of one architecture."""

    audit: int
    denied: dict[str, int]
    socket: int
    clone: int
    forks: tuple[int, ...]
    own: tuple[int, ...]  # calls whose first argument is the process to change: only 0, the caller
    signals: tuple[int, ...]  # calls whose first argument is the process to signal


# The same on every architecture.
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "pidfd_getfd": 438, "memfd_secret": 447,
}  # fmt: skip
_CLONE3 = 435

_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        denied={
            "shmget": 29, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103, "personality": 135,
            "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144, "chroot": 161, "init_module": 175,
            "delete_module": 176, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
            "unshare": 272, "perf_event_open": 298, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
            "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314,
            "memfd_create": 319, "bpf": 321, "userfaultfd": 323,
        },
        socket=41,
        clone=56,
        forks=(57, 58),
        own=(203, 302),
        signals=(62, 129, 200, 234, 297),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        denied={
            "chroot": 51, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
            "syslog": 116, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119, "setpriority": 140,
            "mq_open": 180, "sched_setattr": 274,
            "msgget": 186, "semget": 190, "shmget": 194, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279,
            "bpf": 280, "userfaultfd": 282,
        },
        socket=198,
        clone=220,
        forks=(),
        own=(122, 261),
        signals=(129, 138, 130, 131, 240),
    ),
}  # fmt: skip


def _build_filter() -> bytes | None:
    """The filter for this machine; None where its call numbers are not known.

    Mounting is not in it, since the worker does that, and programs lack the capability; nor can they open a namespace
    in which they would have it.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    program = _opening(machine)
    for number in (*machine.denied.values(), *_COMMON.values()):
        program += _when(_JUMP_EQUAL, number, _error(errno.EPERM))
    # Its flags lie behind a pointer, which a filter cannot follow; the C library then uses clone.
    program += _when(_JUMP_EQUAL, _CLONE3, _error(errno.ENOSYS))
    program += _on_call(machine.clone, _when(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, _error(errno.EPERM)))
    program += _on_call(machine.socket, _unless(_JUMP_EQUAL, _AF_UNIX, _error(errno.EACCES)))
    for number in machine.own:
        program += _on_call(number, _unless(_JUMP_EQUAL, 0, _error(errno.EPERM)))
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _build_host_filter() -> bytes:
    """Keeps a process from signaling others and from sockets of the host: for workers without namespaces."""
    machine = _MACHINES[platform.machine()]
    program = _opening(machine) + _when(_JUMP_EQUAL, machine.socket, _error(errno.EACCES))
    for number in machine.signals:
        allowed = [_step(_JUMP_EQUAL, 0, 2, 0), *_unless(_JUMP_EQUAL, os.getpid(), _error(errno.EPERM))]
        program += _on_call(number, allowed)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _build_fork_filter() -> bytes:
    """Leaves a process only threads: where the system would not count its processes."""
    machine = _MACHINES[platform.machine()]
    program = _opening(machine)
    for number in machine.forks:
        program += _when(_JUMP_EQUAL, number, _error(errno.EAGAIN))
    is_thread = [_step(_JUMP_ANY_BIT, _CLONE_THREAD, 1, 0), _step(_RETURN, _error(errno.EAGAIN))]
    program += _on_call(machine.clone, is_thread)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _opening(machine: _Machine) -> list[bytes]:
    """Refuse other architectures' calls, and leave the call's number loaded."""
    architecture = [_load(_ARCHITECTURE), *_unless(_JUMP_EQUAL, machine.audit, _KILL_PROCESS)]
    return [*architecture, _load(_NUMBER), *_when(_JUMP_AT_LEAST, _X32, _error(errno.EPERM))]


def _install(program: bytes) -> None:
    """Bind this process and all it starts; it must have given up new privileges."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    kernel.prctl(kernel.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _step(_LOAD_WORD, offset)


def _error(number: int) -> int:
    return _ERRNO | number


def _when(jump: int, value: int, verdict: int) -> list[bytes]:
    return [_step(jump, value, 0, 1), _step(_RETURN, verdict)]


def _unless(jump: int, value: int, verdict: int) -> list[bytes]:
    return [_step(jump, value, 1, 0), _step(_RETURN, verdict)]


def _on_call(number: int, body: list[bytes]) -> list[bytes]:
    """Steps that look at the first argument of one call, and leave the call's number loaded for those that follow."""
    inner = [_load(_FIRST_ARGUMENT), *body, _step(_RETURN, _ALLOW)]
    return [_step(_JUMP_EQUAL, number, 0, len(inner)), *inner]
