"""The metrics of a run as curves over its steps: where they have gaps, and few enough points to draw."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

MAX_POINTS = 600
"""Drawn per curve; a chart is narrower than that in pixels."""

_LARGEST = sys.float_info.max / 8
"""Beyond it the width of a scale overflows."""


class Point(NamedTuple):
    """A value of a metric. Nothing was left out between two neighbors of the same stretch."""

    step: int
    value: float
    stretch: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric over the steps of a run."""

    name: str
    points: Sequence[Point]
    """Finite values only, in order of steps."""
    num_not_finite: int
    """Values that are not in `points`: NaN, infinite, or too large to draw."""
    is_dense: bool
    """Whether most steps between its first and its last have it. In one that has not, only such values break a
    stretch, as evaluations are steps apart; in a dense one a step without a value does, too."""

    @property
    def lowest(self) -> Point:
        return min(self.points, key=lambda point: point.value)

    @property
    def highest(self) -> Point:
        return max(self.points, key=lambda point: point.value)

    def stretches(self, max_points: int = MAX_POINTS) -> Iterator[list[Point]]:
        """What to draw, as lines between which there is a gap."""
        for _, points in groupby(_decimated(self.points, max_points), key=lambda point: point.stretch):
            yield list(points)


def curves_of(rows: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Every metric of the rows of a metrics file, by name; what is no number counts as missing.

    Rows of one step count as one: a final evaluation adds its own.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    series: dict[str, list[tuple[int, int, float]]] = {}
    for index, step in enumerate(sorted(by_step)):
        for name, value in by_step[step].items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                series.setdefault(name, []).append((index, step, value))
    return [_curve(name, series[name]) for name in sorted(series)]


def _curve(name: str, values: Sequence[tuple[int, int, float]]) -> Curve:
    """From (index among the run's steps, step, value)."""
    is_dense = 2 * len(values) > values[-1][0] - values[0][0] + 1
    points: list[Point] = []
    stretch, expected = 0, values[0][0]
    for index, step, value in values:
        is_drawable = -_LARGEST < value < _LARGEST  # False of NaN
        if not is_drawable or (is_dense and index != expected):
            stretch += 1
        if is_drawable:
            points.append(Point(step, float(value), stretch))
        expected = index + 1
    return Curve(name=name, points=points, num_not_finite=len(values) - len(points), is_dense=is_dense)


def _decimated(points: Sequence[Point], max_points: int) -> list[Point]:
    """Both ends, and the lowest and the highest of each of equally many points between them."""
    if len(points) <= max_points:
        return list(points)
    size = math.ceil((len(points) - 2) / ((max_points - 2) // 2))
    kept = [points[0]]
    for start in range(1, len(points) - 1, size):
        bucket = points[start : min(start + size, len(points) - 1)]
        extremes = {min(bucket, key=_value), max(bucket, key=_value)}
        kept.extend(sorted(extremes))
    return [*kept, points[-1]]


def _value(point: Point) -> float:
    return point.value
