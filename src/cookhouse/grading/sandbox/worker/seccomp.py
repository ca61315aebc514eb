"""A seccomp filter: system calls that no program needs and that reach other processes, the network or the kernel.

Classic BPF as in linux/seccomp.h. Where a filter cannot be installed the caller is told, and says so.
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Literal, NamedTuple

from . import kernel

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_NAMESPACE_FLAGS = 0x7E020000
_X32 = 0x40000000
_SECCOMP_MODE_FILTER = 2
_AF_UNIX = 1


class _Machine(NamedTuple):
    """System call numbers of one architecture."""

    audit: int
    denied: dict[str, int]
    socket: int
    clone: int
    signals: tuple[int, ...]  # calls whose first argument is the process to signal


# The same on every architecture.
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438,
    "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
_CLONE3 = 435

_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        denied={
            "shmget": 29, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103, "personality": 135,
            "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "init_module": 175, "delete_module": 176,
            "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
            "perf_event_open": 298, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
            "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319,
            "bpf": 321, "userfaultfd": 323,
        },
        socket=41,
        clone=56,
        signals=(62, 129, 200, 234, 297),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        denied={
            "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "personality": 92, "unshare": 97,
            "kexec_load": 104, "init_module": 105, "delete_module": 106, "syslog": 116, "ptrace": 117, "mq_open": 180,
            "msgget": 186, "semget": 190, "shmget": 194, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279,
            "bpf": 280, "userfaultfd": 282,
        },
        socket=198,
        clone=220,
        signals=(129, 138, 130, 131, 240),
    ),
}  # fmt: skip


def build_filter(signals: Literal["any", "self"]) -> bytes | None:
    """The filter for this machine; None where its call numbers are not known.

    `signals="self"` also keeps a process from signaling others: for workers without a process namespace.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    program = [_load(_ARCHITECTURE), *_unless(_JUMP_EQUAL, machine.audit, _KILL_PROCESS), _load(_NUMBER)]
    program += _when(_JUMP_AT_LEAST, _X32, _error(errno.EPERM))
    for number in (*machine.denied.values(), *_COMMON.values()):
        program += _when(_JUMP_EQUAL, number, _error(errno.EPERM))
    # Its flags lie behind a pointer, which a filter cannot follow; the C library then uses clone.
    program += _when(_JUMP_EQUAL, _CLONE3, _error(errno.ENOSYS))
    program += _on_call(machine.clone, _when(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, _error(errno.EPERM)))
    program += _on_call(machine.socket, _unless(_JUMP_EQUAL, _AF_UNIX, _error(errno.EACCES)))
    if signals == "self":
        for number in machine.signals:
            allowed = [_step(_JUMP_EQUAL, 0, 2, 0), *_unless(_JUMP_EQUAL, os.getpid(), _error(errno.EPERM))]
            program += _on_call(number, allowed)
    program.append(_step(_RETURN, _ALLOW))
    return b"".join(program)


def install(program: bytes) -> None:
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
