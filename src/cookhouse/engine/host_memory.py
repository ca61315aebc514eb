"""Memory of this process, and of the machine or container that it runs in. Knows no torch."""

import contextlib
import os
from pathlib import Path

from cookhouse.engine.control_groups import ControlGroups

_STATM = Path("/proc/self/statm")
_RESIDENT = 1
"""Field of proc_pid_statm(5), in pages."""


def resident_bytes(statm: Path = _STATM) -> int | None:
    """Memory of this process that is in RAM, with what it shares; None where the system does not tell."""
    try:
        return int(statm.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def available_bytes() -> int:
    """What the machine has left, or the container that this process runs in."""
    left, limit = _machine_bytes(Path("/proc/meminfo")), ControlGroups().free_bytes()
    return left if limit is None else min(left, limit)


def total_bytes() -> int:
    """All memory of the machine, or of the container that this process runs in."""
    machine, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), ControlGroups().limit_bytes()
    return machine if limit is None else min(machine, limit)


def _machine_bytes(meminfo: Path) -> int:
    """What the system says is available; else pages that are free, or half of all where it does not tell."""
    with contextlib.suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * page_bytes
    return os.sysconf("SC_PHYS_PAGES") * page_bytes // 2


def show_bytes(num_bytes: int) -> str:
    """An amount of memory, for people."""
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**27 else f"{num_bytes / 2**20:.2f} MiB"
