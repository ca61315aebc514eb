"""The charts of a page: the most telling metrics above, the others by the prefix of their names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cookhouse.report.curves import Curve
from cookhouse.report.drawing import Drawing
from cookhouse.telemetry import COMPANIONS, Metric

_GROUPS = ("train", "env", "test", "optim", "rollouts", "time")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawn metric."""

    name: str
    place: int | None = None
    """Among those above all others, as a `Metric` has it."""
    svg: str
    """Markup; empty if there is nothing to draw."""
    caption: str
    drawing: Drawing | None = None
    """What the markup is made of, where that is a chart over steps."""
    change: str = ""
    """Of a curve of so few points that numbers tell more than a line: before and after."""
    difference: str = ""
    """Between these."""
    legend: Sequence[tuple[str, str]] = ()
    """Classes and name of each line, where there are several and the page does not name them."""


@dataclass(frozen=True, kw_only=True)
class ChartGroup:
    """Charts that one click shows or hides."""

    title: str | None
    """None: those that stand above the others, without one."""
    is_open: bool
    charts: Sequence[Chart]


def is_charted(metric: Metric) -> bool:
    """True if a metric has a chart of its own."""
    return metric.chart is not None or not metric.name.endswith(COMPANIONS)


def is_drawn(curve: Curve) -> bool:
    """True if there are enough points that a line shows more than their numbers."""
    return bool(curve.points) and len(curve.points) + curve.num_not_finite > 2


def in_numbers(curve: Curve, caption: str) -> Chart:
    """A curve of at most two points."""
    first, last = curve.points[0].value, curve.points[-1].value
    whole = len(curve.points) == 2
    return Chart(
        name=curve.name,
        place=curve.metric.chart,
        svg="",
        caption=caption,
        change=curve.metric.change_text(first if whole else None, last),
        difference=curve.metric.difference_text(first, last) if whole else "",
    )


def grouped(charts: Sequence[Chart]) -> Iterator[ChartGroup]:
    """The most telling ones, then the others by prefix; what counts the progress is hidden at first."""
    groups: dict[str, list[Chart]] = {name: [] for name in ("", *_GROUPS)}
    for chart in charts:
        groups.setdefault(chart.name.split("/")[0] if chart.place is None else "", []).append(chart)
    groups[""].sort(key=lambda chart: chart.place or 0)
    for name, members in groups.items():
        if members:
            title = f"{name}/ ({len(members)})" if name else None
            yield ChartGroup(title=title, is_open=name != "progress", charts=members)
