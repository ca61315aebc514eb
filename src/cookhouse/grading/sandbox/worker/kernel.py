"""Linux system calls that Python does not wrap; each raises OSError with the call's name."""

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(name: str, result: int, *names: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}", *names)


def prctl(option: int, value: int, address: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(address), zero, zero)
    _check(f"prctl({option})", _libc.prctl(option, *arguments))


def unshare(flags: int) -> None:
    _check("unshare", _libc.unshare(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    _check(
        "mount",
        _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()),
        target,
    )


def mount_read_only(target: str) -> None:
    """Make a mount and all below it read-only, without set-user-id programs (Linux 5.12)."""
    attributes = struct.pack("=QQQQ", MS_RDONLY | MS_NOSUID, 0, 0, 0)  # MOUNT_ATTR_* have the values of MS_* here
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    _check("mount_setattr", result, target)


def unmount(target: str) -> None:
    _check("umount2", _libc.umount2(target.encode(), MNT_DETACH), target)


def pivot_root(new: str, old: str) -> None:
    _check("pivot_root", _libc.pivot_root(new.encode(), old.encode()), new)


def drop_capabilities() -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _check("capset", _libc.capset(header, bytes(24)))
