"""A worker's own users, processes, network and file system: Python, system libraries and one scratch folder.

    outer process    made by the pool; opens the namespaces, waits
    └── zygote       process 1 inside: programs cannot signal it, and all of them end when it does

As root two users exist inside: root for the zygote and `nobody` for programs. Otherwise there is one, the caller, and
programs are kept from the zygote by having no capabilities.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from . import kernel

NOBODY = 65534
SCRATCH = "/box"

_FLAGS = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_DEVICES = ("null", "zero", "full", "random", "urandom")


def enter() -> None:
    """Return in the zygote, inside the namespaces; the calling process stays outside and ends with the zygote."""
    is_root = os.getuid() == 0
    mapped, ready = _start_mapper() if is_root else (None, None)
    user, group = os.getuid(), os.getgid()
    kernel.unshare(_FLAGS)
    if mapped is not None and ready is not None:
        os.write(ready, b"x")
        if os.waitpid(mapped, 0)[1] != 0:
            raise OSError("the users of the namespace could not be set")
    else:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    zygote = os.fork()
    if zygote:
        _wait_outside(zygote)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _start_mapper() -> tuple[int, int]:
    """A child that stays in the old namespace, and from there may give the new one two users."""
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(reader)
        return child, writer
    status = 1
    with contextlib.suppress(OSError):
        os.close(writer)
        if os.read(reader, 1):
            for kind in ("uid_map", "gid_map"):
                Path(f"/proc/{parent}/{kind}").write_text(f"0 0 1\n{NOBODY} {NOBODY} 1\n")
            status = 0
    os._exit(status)


def _wait_outside(zygote: int) -> None:
    """Hold nothing open, and end as the zygote ends."""
    os.closerange(0, 256)
    _, status = os.waitpid(zygote, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def build_root(root: str, disk_bytes: int) -> None:
    """Replace the file system by one built on the empty folder `root`; afterwards nothing else of the host is there."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for source in _shared_paths():
        _share(source, root)
    etc = Path(root, "etc")
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"nobody:x:{NOBODY}:{NOBODY}:nobody:{SCRATCH}:/bin/sh\n")
    (etc / "group").write_text(f"nogroup:x:{NOBODY}:\n")
    _make_devices(Path(root, "dev"))
    for folder in ("proc", SCRATCH[1:], "old"):
        Path(root, folder).mkdir()
    for name in ("tmp", "var/tmp", "dev/shm"):  # where programs expect to write
        link = Path(root, name)
        if not link.exists():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(SCRATCH)
    kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.pivot_root(root, f"{root}/old")
    os.chdir("/")
    kernel.unmount("/old")
    Path("/old").rmdir()
    kernel.mount("none", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)
    mount_scratch(disk_bytes)


def mount_scratch(disk_bytes: int) -> None:
    """An empty scratch folder of bounded size, in memory."""
    options = f"size={disk_bytes},nr_inodes=4096,mode=777"
    kernel.mount("tmpfs", SCRATCH, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def renew_scratch(disk_bytes: int) -> None:
    kernel.unmount(SCRATCH)
    mount_scratch(disk_bytes)


def forbid_more() -> None:
    """No namespaces below this one: in them a program would have capabilities again."""
    with contextlib.suppress(OSError):  # the seccomp filter forbids the calls as well
        Path("/proc/sys/user/max_user_namespaces").write_text("0")


def python_paths() -> list[str]:
    """Folders of the interpreter and its packages."""
    return [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]


def _shared_paths() -> list[str]:
    """Paths of the host that are shown, without those that lie in another of them."""
    chosen: list[str] = []
    for path in sorted({*_SYSTEM, *python_paths()}, key=len):
        if Path(path).exists() and not any(Path(path).is_relative_to(other) for other in chosen):
            chosen.append(path)
    return chosen


def _share(source: str, root: str) -> None:
    target = Path(root, source[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_symlink():  # /bin -> usr/bin
        target.symlink_to(Path(source).readlink())
        return
    if Path(source).is_dir():
        target.mkdir()
    else:
        target.touch()
    kernel.mount(source, str(target), flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.mount_read_only(str(target))


def _make_devices(folder: Path) -> None:
    folder.mkdir()
    for name in _DEVICES:
        (folder / name).touch()
        kernel.mount(f"/dev/{name}", str(folder / name), flags=kernel.MS_BIND)
    (folder / "fd").symlink_to("/proc/self/fd")
