"""The table of a sweep, as its pages show it: what was swept, and each run with its value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cookhouse.telemetry import Direction, Metric, measured_text

WAITING: Final = "waiting"
"""The state of a run that has not begun."""
PAUSED: Final = "paused"
"""Of one that waits at its rung to be compared with others."""
STOPPED: Final = "stopped"
"""Of one that does not go on from there."""


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """A run of a sweep."""

    name: str
    settings: Mapping[str, Any]
    """Those that were swept."""
    state: str
    """`finished`, `interrupted`, `failed`, `running`, `WAITING`, or one of those of successive halving: `PAUSED` and
    `STOPPED`."""
    value: float | None
    """The last one of the metric, or that of the best weights where the run keeps these; NaN where it diverged, None if
    it was not measured."""
    stderr: float | None
    """Standard error of that value, where it was given."""
    is_best: bool
    n: float | None = None
    """Items that the value is the mean of, where that was given."""
    steps: int | None = None
    """That it had taken when that was measured, where runs end after different ones."""


@dataclass(frozen=True, kw_only=True)
class SweepTable:
    """A sweep, run by run."""

    swept: Sequence[str]
    """Names of the settings that differ among the runs."""
    metric: Metric | None
    """By which runs are compared; None: no metric is in all those that finished."""
    way: Direction | None
    """Which way is better; None: neither, and no run is the best."""
    rows: Sequence[SweepRow]
    remark: str = ""
    """What the best has against it: a tie and what decided it, or a difference within its standard error; without a
    best, that the runs were measured on different data.
    """

    @property
    def has_steps(self) -> bool:
        """True if its runs end after different numbers of steps."""
        return any(row.steps is not None for row in self.rows)

    @property
    def best(self) -> SweepRow | None:
        """The best of the runs that finished."""
        return next((row for row in self.rows if row.is_best), None)

    def text(self, row: SweepRow) -> str:
        """A run's value as one reads it, also where it diverged, with its standard error."""
        if self.metric is None or row.value is None:
            return "-"
        if not math.isfinite(row.value):
            return str(row.value)
        return measured_text(self.metric, row.value, row.stderr, row.n)
