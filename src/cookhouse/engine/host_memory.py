"""Memory of this process, and of the machine or container that it runs in. Knows no torch."""

import contextlib
import os
import resource
from pathlib import Path

from cookhouse.engine.control_groups import ControlGroups

_STATM = Path("/proc/self/statm")
_SIZE, _RESIDENT, _DATA = 0, 1, 5
"""Fields of proc_pid_statm(5), in pages."""


def resident_bytes(statm: Path = _STATM) -> int | None:
    """Memory of this process that is in RAM, with what it shares; None where the system does not tell."""
    try:
        return int(statm.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def available_bytes() -> int:
    """The least of what the machine, the container and the limits of this process leave; bytes."""
    limits = [ControlGroups().free_bytes(), *(limit - used for limit, used in _own_limits())]
    return max(min([_machine_bytes(Path("/proc/meminfo")), *(limit for limit in limits if limit is not None)]), 0)


def total_bytes() -> int:
    """All memory of the machine, of the container that this process runs in, or that this process may take."""
    machine, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), ControlGroups().limit_bytes()
    return min([machine, *([] if limit is None else [limit]), *(own for own, _ in _own_limits())])


def _own_limits(statm: Path = _STATM) -> list[tuple[int, int]]:
    """Limits of this process, as batch systems set them (ulimit -v, -d), each with what is taken of it; bytes."""
    try:
        fields = [int(field) * os.sysconf("SC_PAGE_SIZE") for field in statm.read_text().split()]
    except OSError:
        return []
    of = ((resource.RLIMIT_AS, fields[_SIZE]), (resource.RLIMIT_DATA, fields[_DATA]))
    limits = [(resource.getrlimit(kind)[0], used) for kind, used in of]
    return [(limit, used) for limit, used in limits if limit != resource.RLIM_INFINITY]


def _machine_bytes(meminfo: Path) -> int:
    """Memory that the system reports as available; else pages that are free, or half of all where it reports none."""
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
