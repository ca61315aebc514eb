"""Largest changes from one step to the next, against how much each metric usually moves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from cookhouse.telemetry import COMPANIONS, Metric, as_float, find_metric, is_held_out

_SMALL_SHARE = 1e-6
"""Of a value: a smaller change is rounding."""
_CLOCK = ("time/", "progress/")
"""Metrics that tell of the machine, not of the model."""
MIN_USUAL = 3
"""Steps whose changes tell what is usual."""


@dataclass(frozen=True, kw_only=True)
class StepChange:
    """A metric at a step and at the one before."""

    metric: Metric
    before: float
    after: float
    usual: float | None
    """The median of how far it moved at the steps before; None: there are too few of them."""

    @property
    def times_usual(self) -> float | None:
        """Distance that it moved, in units of the usual one; infinite of one that did not move before."""
        if self.usual is None:
            return None
        size = abs(self.after - self.before)
        return size / self.usual if self.usual > 0 else math.inf if size else 0.0

    @property
    def is_better(self) -> bool | None:
        """None: neither way is."""
        if self.metric.direction is None:
            return None
        return (self.after > self.before) == (self.metric.direction == "more")

    @property
    def told(self) -> str:
        """As a sentence."""
        times = self.times_usual
        unusual = ""
        if times is not None:
            unusual = ", which did not move before" if math.isinf(times) else f", {times:.3g} times its usual change"
        change = self.metric.change_text(self.before, self.after)
        return f"{change} ({self.metric.difference_text(self.before, self.after)}{unusual})"


def step_changes(
    rows: Sequence[Mapping[str, Any]], step: int, own: Mapping[str, Metric], *, limit: int = 12
) -> list[StepChange]:
    """The metrics of the row of `step` (0-based) that moved most against the step before, the most unusual first; where
    nothing tells what is usual, what a page tells most of, and then the largest in proportion.

    `rows` are those of a metrics file up to that step, or its end. Times, errors of means and what is held out, which
    is measured now and then, are left out; so is what did not move.
    """
    series = _series(rows, step)
    now, before = series.get(step, {}), series.get(step - 1, {})
    history = [series[each] for each in sorted(series) if each < step]
    changes = [
        StepChange(
            metric=find_metric(name, own),
            before=before[name],
            after=value,
            usual=_usual([r.get(name) for r in history]),
        )
        for name, value in now.items()
        if name in before and _is_told(name) and _moved(before[name], value)
    ]
    return sorted(changes, key=_order)[:limit]


def _series(rows: Sequence[Mapping[str, Any]], step: int) -> dict[int, dict[str, float]]:
    """Finite numbers by step, of the rows up to one step."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["step"] <= step:
            found.setdefault(row["step"], {}).update(
                (name, float(value))
                for name, value in row.items()
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(as_float(value))
            )
    return found


def _is_told(name: str) -> bool:
    return not (name == "step" or name.startswith(_CLOCK) or name.endswith(COMPANIONS) or is_held_out(name))


def _moved(before: float, after: float) -> bool:
    return abs(after - before) > _SMALL_SHARE * max(abs(before), abs(after))


def _usual(values: Sequence[float | None]) -> float | None:
    moves = [abs(after - before) for before, after in pairwise(values) if before is not None and after is not None]
    return median(moves) if len(moves) >= MIN_USUAL else None


def _order(change: StepChange) -> tuple[float, bool, float]:
    """Among those as unusual, what a page tells most of goes first."""
    share = abs(change.after - change.before) / max(abs(change.before), abs(change.after))
    return -(change.times_usual or 0.0), change.metric.chart is None, -share
