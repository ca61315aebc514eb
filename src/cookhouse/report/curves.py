"""The metrics of a run as curves over its steps, drawn as SVG: with gaps where values are missing, and few points."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from cookhouse.printable import printable
from cookhouse.telemetry import Metric, find_metric, step_number

NUM_COLORS = 8
"""Of curves in one chart."""
MAX_POINTS = 600
"""Drawn per curve; a chart is narrower than that in pixels."""

_LARGEST = sys.float_info.max / 8
"""Beyond it the width of a scale overflows."""
WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 8, 22
_MAX_DOTS = 40
"""Points of a dense curve that are shown as dots; of more, a dot appears under the mouse."""
_FEW = 3
"""Values of a metric that most steps have not, however close together these are."""
_FLAT = 1e-9
"""Width of a scale relative to its largest number below which it cannot be labeled."""


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


def curves_of(rows: Sequence[Mapping[str, Any]], own: Mapping[str, Metric]) -> list[Curve]:
    """Every metric of the rows of a metrics file, by name; what is no number counts as missing.

    Rows of one step count as one: a final evaluation adds its own. `own` are the metrics that the run declared.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    series: dict[str, list[tuple[int, int, float]]] = {}
    for index, step in enumerate(sorted(by_step)):
        for name, value in by_step[step].items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                series.setdefault(name, []).append((index, step, value))
    return [_curve(find_metric(name, own), series[name]) for name in sorted(series)]


def step_range(curves: Iterable[Curve]) -> tuple[int, int]:
    """The first and the last step of some curves that has a value."""
    steps = [point.step for curve in curves for point in curve.points] or [0]
    return min(steps), max(steps)


def _curve(metric: Metric, values: Sequence[tuple[int, int, float]]) -> Curve:
    """From (index among the run's steps, step, value)."""
    num_steps = values[-1][0] - values[0][0] + 1
    # Of three values within five steps nobody can tell: they are taken for evaluations, which a line joins.
    is_dense = len(values) == num_steps or (len(values) > _FEW and 2 * len(values) > num_steps)
    points: list[Point] = []
    stretch, expected = 0, values[0][0]
    for index, step, value in values:
        is_drawable = -_LARGEST < value < _LARGEST  # False of NaN
        if not is_drawable or (is_dense and index != expected):
            stretch += 1
        if is_drawable:
            points.append(Point(step_number(step, metric.name), float(value), stretch))
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


@dataclass(frozen=True, kw_only=True)
class Series:
    """A curve in a chart of several."""

    curve: Curve
    label: str
    style: str
    """Classes that the page has for it: `series_style`."""


def series_style(index: int) -> str:
    """Classes for one of several curves, counted from 0: colors, and after those the same ones dashed."""
    return f"series-{index % NUM_COLORS}" + " again" * (index >= NUM_COLORS)


def curve_svg(curve: Curve, first_step: int, last_step: int) -> str:
    """A chart of at least one point over the steps from first to last: lines where steps are dense, else dots joined
    by a dashed line, and each point's value as its title. Colors are left to the page, which styles the classes.
    """
    return _chart([curve], first_step, last_step, lambda across, upward: _line(curve, across, upward))


def overlaid_svg(several: Sequence[Series], first_step: int, last_step: int) -> str:
    """A chart of one metric of several runs, each of at least one point, as `curve_svg`."""

    def lines(across: Scale, upward: Scale) -> Iterator[str]:
        for series in several:
            yield f'<g class="{series.style}">'
            yield from _line(series.curve, across, upward, of=f"{escape(printable(series.label))}, ")
            yield "</g>"

    return _chart([series.curve for series in several], first_step, last_step, lines)


def _chart(
    curves: Sequence[Curve], first_step: int, last_step: int, lines: Callable[["Scale", "Scale"], Iterator[str]]
) -> str:
    across = Scale(first_step, last_step, LEFT, WIDTH - RIGHT, whole=True)
    lowest, highest = min(curve.lowest.value for curve in curves), max(curve.highest.value for curve in curves)
    upward = upward_scale(curves[0].metric, lowest, highest)
    name = escape(printable(curves[0].name))
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name} over steps">',
            *_axes(across, upward),
            *lines(across, upward),
            "</svg>",
        ]
    )


def upward_scale(metric: Metric, lowest: float, highest: float) -> "Scale":
    """The scale of a metric's values, with some room above and below them; a share has none below 0 and above 1."""
    margin = (highest - lowest) / 20
    return Scale(
        lowest - margin,
        highest + margin,
        HEIGHT - BOTTOM,
        TOP,
        is_percent=metric.is_share and lowest >= -1 and highest <= 1,
        within=(0.0, 1.0) if metric.is_share and lowest >= 0 and highest <= 1 else None,
    )


class Scale:
    """Maps values to pixels, and knows round values to label it with."""

    def __init__(
        self,
        low: float,
        high: float,
        from_pixel: float,
        to_pixel: float,
        *,
        whole: bool = False,
        is_percent: bool = False,
        within: tuple[float, float] | None = None,
    ) -> None:
        largest = max(abs(low), abs(high))
        if high - low <= largest * _FLAT or high - low < 1e-290:
            room = 0.5 if whole or largest < 1e-280 else largest / 10
            low, high = low - room, high + room
        if within is not None:
            low, high = max(low, within[0]), min(high, within[1])
        self._low, self._high, self._whole, self._is_percent = low, high, whole, is_percent
        self._from, self._to = from_pixel, to_pixel
        self._gap = max(1.0, _round_gap((high - low) / 5)) if whole else _round_gap((high - low) / 5)

    def pixel(self, value: float) -> float:
        return self._from + (value - self._low) / (self._high - self._low) * (self._to - self._from)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values with their labels."""
        first = math.ceil(self._low / self._gap)
        count = math.floor(self._high / self._gap) - first + 1
        return [(value, self._label(value)) for value in ((first + index) * self._gap for index in range(count))]

    def _label(self, value: float) -> str:
        if self._whole:
            return f"{value:,.0f}"
        largest, decimals = max(abs(self._low), abs(self._high)), -math.floor(math.log10(self._gap))
        if self._is_percent:
            return f"{round(value * 100, max(0, decimals - 2)) + 0.0:.{max(0, decimals - 2)}f}%"
        if largest < 1e5 and decimals <= 5:
            return f"{round(value, decimals) + 0.0:.{max(0, decimals)}f}"  # + 0.0: never -0
        return f"{value:.{max(1, math.floor(math.log10(largest)) + decimals + 1)}g}"


def _round_gap(gap: float) -> float:
    """The next larger one of 1, 2, 5, 10, 20, 50 and so on."""
    power: float = 10.0 ** math.floor(math.log10(gap))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= gap * (1 - _FLAT))


def _axes(across: Scale, upward: Scale) -> Iterator[str]:
    for value, label in upward.ticks():
        y = upward.pixel(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for value, label in across.ticks():
        x = across.pixel(value)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>'


def _line(curve: Curve, across: Scale, upward: Scale, of: str = "") -> Iterator[str]:
    stretches = list(curve.stretches())
    is_short = sum(map(len, stretches)) <= _MAX_DOTS

    def place(point: Point) -> tuple[str, str]:
        return f"{across.pixel(point.step):.1f}", f"{upward.pixel(point.value):.1f}"

    for stretch in stretches:
        if len(stretch) > 1:
            places = " ".join(",".join(place(point)) for point in stretch)
            yield f'<polyline class="{"line" if curve.is_dense else "guide"}" points="{places}"/>'
    for stretch in stretches:
        kind = "dot" if is_short or not curve.is_dense or len(stretch) == 1 else "hover"
        radius = 1.5 if kind == "dot" and not is_short else 3
        for point in stretch:
            x, y = place(point)
            title = f"{of}step {point.step}: {curve.metric.text(point.value)}"
            yield f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}"><title>{title}</title></circle>'
