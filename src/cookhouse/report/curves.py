"""The metrics of a run as curves over its steps: with gaps where values are missing, and few points."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from cookhouse.telemetry import Metric, step_number

MAX_POINTS = 600
"""Drawn per curve; a chart is narrower than that in pixels."""

_LARGEST = sys.float_info.max / 8
"""Beyond it the width of a scale overflows."""
_FEW = 3
"""Values of a metric that most steps have not, however close together these are."""


class Point(NamedTuple):
    """A value of a metric. Nothing was left out between two neighbors of the same stretch."""

    step: int
    """As people count them, from 1; of what is held out, those that the measured weights had taken."""
    value: float
    stretch: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric over the steps of a run."""

    metric: Metric
    points: Sequence[Point]
    """Finite values only, in order of steps."""
    num_not_finite: int
    """Values that are not in `points`: NaN, infinite, or too large to draw."""
    is_dense: bool
    """Whether most steps between its first and its last have it. In one that has not, only such values break a
    stretch, as evaluations are steps apart; in a dense one a step without a value does, too."""

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def best(self) -> Point | None:
        """The best value; None of a metric that is better neither way."""
        best = self.metric.best(point.value for point in self.points)
        return next((point for point in self.points if point.value == best), None)

    @cached_property
    def lowest(self) -> Point:
        return min(self.points, key=lambda point: point.value)

    @cached_property
    def highest(self) -> Point:
        return max(self.points, key=lambda point: point.value)

    def stretches(self, max_points: int = MAX_POINTS) -> Iterator[list[Point]]:
        """Lines to draw, with gaps between them."""
        for _, points in groupby(_decimated(self.points, max_points), key=lambda point: point.stretch):
            yield list(points)


def step_range(curves: Iterable[Curve]) -> tuple[int, int]:
    """The first and the last step of some curves that has a value."""
    steps = [point.step for curve in curves for point in curve.points] or [0]
    return min(steps), max(steps)


def is_drawable(value: float) -> bool:
    """True if it is finite, and not too large for an axis."""
    return -_LARGEST < value < _LARGEST  # False of NaN


def curve_of(metric: Metric, values: Sequence[tuple[int, int, float]]) -> Curve:
    """From (index among the run's steps, step, value), in order of steps; there is one at least."""
    num_steps = values[-1][0] - values[0][0] + 1
    # Of three values within five steps nobody can tell: they are taken for evaluations, which a line joins.
    is_dense = len(values) == num_steps or (len(values) > _FEW and 2 * len(values) > num_steps)
    points: list[Point] = []
    stretch, expected = 0, values[0][0]
    first = step_number(0, metric.name)
    for index, step, value in values:
        can_draw = is_drawable(value)
        if not can_draw or (is_dense and index != expected):
            stretch += 1
        if can_draw:
            points.append(Point(first + step, float(value), stretch))
        expected = index + 1
    return Curve(metric=metric, points=points, num_not_finite=len(values) - len(points), is_dense=is_dense)


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
