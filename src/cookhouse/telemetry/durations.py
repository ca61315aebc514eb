"""Durations as a person reads them."""

from typing import Final

_UNITS: Final = (("h", 3600.0, 5400.0), ("min", 60.0, 90.0), ("s", 1.0, 0.0))
"""Name, seconds of it, and the seconds from which it is taken."""


def span(low: float, high: float) -> str:
    """Seconds from `low` to `high`: `2 to 4 min`, or `about 3 min` where both round to the same."""
    name, size, _ = next(unit for unit in _UNITS if high >= unit[2])
    least, most = (f"{seconds / size:.{1 if name == 'h' else 0}f}" for seconds in (low, high))
    return f"about {most} {name}" if least == most else f"{least} to {most} {name}"
