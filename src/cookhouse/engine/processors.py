"""The cores that this process may compute on. Knows no torch."""

import math
import os

from cookhouse.engine.control_groups import ControlGroups


def allowed_cores() -> list[int]:
    """The cores that the calling thread may run on, by number."""
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not every system has it, or lets us
        return list(range(os.cpu_count() or 1))


def num_within_quota(num_cores: int) -> int:
    """Of so many cores those that a quota of processor time reaches, at least one."""
    quota = ControlGroups().num_cores() or math.inf
    # A part of a core is worth a thread: it computes, if not all the time.
    return max(1, min(num_cores, math.ceil(min(quota, 2**31))))
