"""Resources that a process and its descendants have used, from Linux's /proc; on other systems nothing is known."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _OWN_TIMES, _TIMES = 1, slice(11, 13), slice(11, 15)
"""Fields of proc_pid_stat(5) behind the name: ticks are in user and system mode, its own and of ended children."""


def tree(root: int) -> list[int]:
    """A process and all that descend from it, each behind its parent; those that were handed on to init are missing."""
    by_parent: dict[int, list[int]] = {}
    for pid, fields in _stats():
        by_parent.setdefault(int(fields[_PARENT]), []).append(pid)
    found = [root]
    for pid in found:
        found += by_parent.get(pid, ())
    return found


def peak_bytes(pids: Iterable[int]) -> int | None:
    """The most memory that each has held, added up: what they share counts for each. None: the system does not say."""
    peaks = [peak for pid in pids if (peak := _peak_bytes(pid)) is not None]
    return sum(peaks) if peaks else None


def cpu_seconds(root: int) -> float:
    """Processor time of a process and of those that it started, all threads, also of those that have ended."""
    pids = set(tree(root))
    ticks = sum(sum(map(int, fields[_TIMES])) for pid, fields in _stats() if pid in pids)
    return ticks / os.sysconf("SC_CLK_TCK")


def own_cpu_seconds(pid: int) -> float:
    """Processor time of one process, all threads, without those that it started."""
    ticks = next((fields[_OWN_TIMES] for each, fields in _stats() if each == pid), ())
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def runs_module(pid: int, module: str) -> bool:
    """True if a process is `python -m MODULE`, or was started so."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return module.encode() in words


def _peak_bytes(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # it has ended
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Of each process its fields behind the name, which may hold spaces."""
    if not _PROC.is_dir():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:  # it has ended
                continue
            yield int(entry.name), text.rpartition(")")[2].split()
