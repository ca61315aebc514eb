"""Charts as plain data, which `chart.js` draws on every page, and their groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse.report.curves import Curve, Point
from cookhouse.telemetry import COMPANIONS, Metric

NUM_COLORS = 8
"""Of curves in one chart."""
_MAX_NAME = 200
"""Letters of a name next to a chart."""
_GROUPS = ("train", "env", "test", "optim", "rollouts", "time")


@dataclass(frozen=True, kw_only=True)
class Series:
    """A curve of a chart."""

    curve: Curve
    label: str = ""
    """Which of several it is; empty of a single one."""
    color: int = 0
    """Counted from 0: after the last color the same ones dashed."""
    address: str = ""
    """Beginning of the address that a point leads to, before its step; empty: it leads nowhere."""
    errors: Mapping[int, float] = field(default_factory=dict)
    """Standard errors by step, where they were measured."""

    def as_json(self) -> dict[str, Any]:
        """As a line of `chart.js`: points of step, value and error, None between stretches."""
        points: list[tuple[Any, ...] | None] = []
        for stretch in self.curve.stretches():
            points += [*([None] if points else []), *map(self._point, stretch)]
        return {
            "label": self.label,
            "style": series_style(self.color),
            "address": self.address,
            "is_dense": self.curve.is_dense,
            "points": points,
        }

    def _point(self, point: Point) -> tuple[Any, ...]:
        error = self.errors.get(point.step)
        return (point.step, point.value) if error is None else (point.step, point.value, error)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A metric, or the same one of training and of held-out data, or of several runs."""

    name: str
    """By which a page asks for it."""
    title: str = ""
    """What it is called, where that is not its name."""
    names: Sequence[str] = ()
    """Of the metrics in it, where it has a title."""
    place: int | None = None
    """Among those above all others, as a `Metric` has it."""
    caption: str = ""
    data: Mapping[str, Any] | None = None
    """What `chart.js` draws; None: nothing is to draw, or it is asked for when it is seen."""
    constant: str = ""
    """The one value that it has at every step: it has no line."""
    change: str = ""
    """Of a curve of so few points that numbers tell more than a line: before and after."""
    difference: str = ""
    """Between these."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """Classes and name of each line, where there are several."""
        lines = [] if self.data is None else self.data["lines"]
        return [(line["style"], line["label"]) for line in lines if line["label"]]

    def as_json(self) -> dict[str, Any]:
        """Content of it, by which a page draws it anew."""
        return {name: getattr(self, name) for name in ("caption", "change", "difference", "data")}


@dataclass(frozen=True, kw_only=True)
class ChartGroup:
    """Charts that one click shows or hides."""

    key: str
    """By which a page distinguishes it while the count in its title grows; empty: it stands above the others."""
    charts: Sequence[Chart]

    @property
    def title(self) -> str:
        return f"{self.key}/ ({len(self.charts)})" if self.key else ""


def series_style(index: int) -> str:
    """Classes for one of several curves."""
    return f"series-{index % NUM_COLORS}" + " again" * (index >= NUM_COLORS)


def chart_data(name: str, several: Sequence[Series], steps: tuple[int, int]) -> dict[str, Any]:
    """A chart over the steps from first to last of series of one measure, each of at least one point."""
    return {
        "name": name[:_MAX_NAME],
        "is_share": several[0].curve.metric.is_share,
        "first": steps[0],
        "last": steps[1],
        "lines": [series.as_json() for series in several],
    }


def is_charted(metric: Metric) -> bool:
    """True if a metric has a chart of its own."""
    return metric.chart is not None or not metric.name.endswith(COMPANIONS)


def is_drawn(curve: Curve) -> bool:
    """True if there are enough points that a line shows more than their numbers."""
    return bool(curve.points) and len(curve.points) + curve.num_not_finite > 2


def grouped(charts: Sequence[Chart]) -> Iterator[ChartGroup]:
    """The most telling ones, then the others by the prefix of their names."""
    groups: dict[str, list[Chart]] = {name: [] for name in ("", *_GROUPS)}
    for chart in charts:
        groups.setdefault(chart.name.split("/")[0] if chart.place is None else "", []).append(chart)
    groups[""].sort(key=lambda chart: chart.place or 0)
    for key, members in groups.items():
        if members:
            yield ChartGroup(key=key, charts=members)
