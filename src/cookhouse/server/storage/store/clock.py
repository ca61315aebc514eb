"""Clocks of what has a time to live: two, since one of them may be set, at any moment, a day ahead or back.

    the system's clock           what rows and clients have; the database's, where servers share one
    how long we have been up     added to what that clock said at the start

A time to live counts from the later of the two, and is over once both say so: a jump prolongs it at most. What the
clock did while no server was up nobody knows, so that nothing is over in the first hour: time to set it right.
"""

import time
from collections.abc import Callable

_FIRST_SECONDS = 3600.0


def steady_seconds() -> float:
    """On a clock that nobody sets, and that goes on while the machine is suspended, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SharedTime:
    """Time by the clock of a database, which is the same for all servers that share it: counted on from its last
    reading.
    """

    def __init__(self, now: float) -> None:
        self.note(now)

    def note(self, now: float) -> None:
        self._ahead = now - time.monotonic()

    def __call__(self) -> float:
        return self._ahead + time.monotonic()


class Clock:
    def __init__(
        self, system: Callable[[], float] = lambda: time.time(), uptime: Callable[[], float] = lambda: time.monotonic()
    ) -> None:
        self._system = system
        self._uptime = uptime
        self._began = uptime()
        self._began_at = system()

    def now(self) -> float:
        """Of rows."""
        return self._system()

    def end_of(self, seconds: float) -> float:
        """End of a time to live that begins now."""
        return max(self._system(), self._counted()) + seconds

    def is_over(self, end: float | None) -> bool:
        """None: for ever."""
        return end is not None and end <= self.over()

    def over(self) -> float:
        """All that ends until then is over."""
        if self._uptime() - self._began < _FIRST_SECONDS:
            return float("-inf")
        return min(self._system(), self._counted())

    def _counted(self) -> float:
        return self._began_at + self._uptime() - self._began
