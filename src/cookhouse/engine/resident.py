"""What memory this process takes."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")
_RESIDENT = 1
"""Field of proc_pid_statm(5), in pages."""


def resident_bytes(statm: Path = _STATM) -> int | None:
    """Memory of this process that is in RAM, with what it shares; None where the system does not tell."""
    try:
        return int(statm.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
