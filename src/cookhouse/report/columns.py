"""The numbers of a metrics file by metric: rows are added as they come, and a curve is made of the metric asked for."""

import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from cookhouse.report.curves import Curve, curve_of, is_drawable
from cookhouse.telemetry import Metric, as_float, find_metric, step_number

_FEW = 2
"""Values that numbers tell enough of."""


class MetricColumns:
    """Steps and values of each metric. What is no number counts as missing; of two rows of a step, the later holds."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._steps: dict[int, None] = {}
        self._index: dict[int, int] = {}
        self._is_ordered, self._last_step = True, 0
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        for row in rows:
            self.add(row)

    @property
    def names(self) -> list[str]:
        """Of all metrics that have a number, sorted."""
        return sorted(self._columns)

    @property
    def num_steps(self) -> int:
        return len(self._steps)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row: its `step`, and its metrics by name."""
        step = row["step"]
        self._is_ordered = self._is_ordered and step >= self._last_step
        self._last_step = step
        self._steps[step] = None
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                if name not in self._columns:
                    self._columns[sys.intern(name)] = (array("q"), array("d"))
                steps, values = self._columns[name]
                steps.append(step)
                values.append(as_float(value))

    def curve(self, name: str, own: Mapping[str, Metric]) -> Curve:
        """A metric over the steps. `own` are the metrics that the run declared."""
        if len(self._index) < len(self._steps):
            self._index = {step: place for place, step in enumerate(sorted(self._steps))}
        index, (steps, values) = self._index, self._columns[name]
        by_step = dict(zip(steps, values, strict=True))
        return curve_of(find_metric(name, own), [(index[step], step, by_step[step]) for step in sorted(by_step)])

    def num_values(self, name: str) -> int:
        """Of a metric, two of one step counted twice."""
        return len(self._columns[name][1]) if name in self._columns else 0

    def last(self, name: str) -> tuple[int, float] | None:
        """The last step with a value of a metric that can be drawn, and that; steps as the rows have them."""
        if name not in self._columns:
            return None
        steps, values = self._columns[name]
        pairs: Iterable[tuple[int, float]] = zip(reversed(steps), reversed(values), strict=True)
        if not self._is_ordered:
            pairs = sorted(dict(zip(steps, values, strict=True)).items(), reverse=True)
        return next(((step, value) for step, value in pairs if is_drawable(value)), None)

    def value_at(self, name: str, step: int) -> float | None:
        """The value of a metric at a step, as the rows have it, if it can be drawn."""
        steps, values = self._columns.get(name, ((), ()))
        pairs = zip(reversed(steps), reversed(values), strict=True)
        return next((value for at, value in pairs if at == step and is_drawable(value)), None)

    def constant(self, name: str) -> float | None:
        """The one value that a metric has at all of more than two steps; None: it has several, or one not to draw."""
        _, values = self._columns[name]
        is_one = len(values) > _FEW and is_drawable(values[0]) and all(value == values[0] for value in values)
        return values[0] if is_one else None

    def by_step(self, name: str) -> dict[int, float]:
        """The values of a metric that can be drawn, by step as people count them."""
        pairs = zip(*self._columns.get(name, ((), ())), strict=True)
        return {step_number(step, name): value for step, value in pairs if is_drawable(value)}

    def rows(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Rows of a few metrics, one for each step that has any of them, in order of steps."""
        by_step: dict[int, dict[str, Any]] = {}
        for name in self._columns.keys() & set(names):
            for step, value in zip(*self._columns[name], strict=True):
                by_step.setdefault(step, {"step": step})[name] = value
        return [by_step[step] for step in sorted(by_step)]

    def step_range(self) -> tuple[int, int]:
        """The first and the last step of all metrics, as people count them."""
        ends = [
            step_number(end, name) for name, (steps, _) in self._columns.items() for end in (min(steps), max(steps))
        ] or [0]
        return min(ends), max(ends)


def curves_of(rows: Iterable[Mapping[str, Any]], own: Mapping[str, Metric]) -> list[Curve]:
    """Every metric of the rows of a metrics file, by name. `own` as in `MetricColumns.curve`."""
    columns = MetricColumns(rows)
    return [columns.curve(name, own) for name in columns.names]
