"""The metrics of a run by name, filled row by row: what rules read."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cookhouse.telemetry import as_float, keys, step_number

_LARGEST = 1e100
"""Beyond it sums of squares overflow."""


class Point(NamedTuple):
    """A value of a metric."""

    step: int
    """As people count them, from 1; of what is held out, those that the measured weights had taken."""
    value: float


class MetricHistory:
    """Finite values of the metrics of a run, in the order of their rows; of two rows of a step, the later holds."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._points: dict[str, list[Point]] = {}
        self.num_steps = 0
        """Steps trained so far."""
        for row in rows:
            self.add(row)

    @property
    def names(self) -> list[str]:
        """Of the metrics that have a value."""
        return list(self._points)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row of metrics.jsonl: its `step`, and its metrics by name."""
        if keys.LEARNING_RATE in row:
            self.num_steps = max(self.num_steps, step_number(row["step"]))
        for name, value in row.items():
            if name == "step" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if abs(number := as_float(value)) < _LARGEST:  # False of NaN
                point = Point(step_number(row["step"], name), number)
                points = self._points.setdefault(name, [])
                if points and points[-1].step == point.step:
                    points.pop()
                points.append(point)

    def points(self, name: str) -> list[Point]:
        """All values of a metric."""
        return self._points.get(name, [])

    def first(self, name: str, count: int) -> list[float]:
        """The first so many values of a metric, fewer if there are no more."""
        return [point.value for point in self.points(name)[:count]]

    def last(self, name: str, count: int) -> list[float]:
        """The last so many values of a metric, fewer if there are no more."""
        return [point.value for point in self.points(name)[-count:]]
