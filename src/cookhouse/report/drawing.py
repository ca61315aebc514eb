"""A chart as plain data: where its lines, points and labels lie. Static pages have it as SVG, live ones draw it
themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, NamedTuple, TypeAlias

from cookhouse.errors import printable
from cookhouse.report.curves import MAX_POINTS, Curve, Point
from cookhouse.report.scale import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Scale, upward_scale

NUM_COLORS = 8
"""Of curves in one chart."""
_MAX_DOTS = 40
"""Points of a dense curve that are shown as dots; of more, a dot appears under the mouse."""

Address: TypeAlias = Callable[[str, int], str]
"""Where the label of a line and a step lead to."""


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


class DrawnPoint(NamedTuple):
    """A point of a line, in pixels."""

    x: float
    y: float
    step: int
    text: str
    """Its value, as a person reads it."""
    value: float


class Tick(NamedTuple):
    """A label of an axis."""

    pixel: float
    label: str


@dataclass(frozen=True, kw_only=True)
class DrawnLine:
    """A curve, in pixels."""

    label: str
    """Which of several it is; empty of a single one."""
    style: str
    """Classes of one of several; empty of a single one."""
    kind: str
    """`line`, or `guide`: joins what was measured some steps apart."""
    dots: str
    """`dot`: its points are drawn, or `hover`: the one under the mouse is. A lone point is drawn always."""
    radius: float
    """Of a point that is drawn; the one under the mouse has 3."""
    stretches: Sequence[Sequence[DrawnPoint]]
    """Between which there is a gap."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A chart of one metric over steps."""

    name: str
    across: Sequence[Tick]
    upward: Sequence[Tick]
    lines: Sequence[DrawnLine]

    def as_json(self) -> dict[str, Any]:
        """Plain values by name, and the size of the chart in pixels."""
        return {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM, **asdict(self)}


def curve_drawing(curve: Curve, first_step: int, last_step: int, max_points: int = MAX_POINTS) -> Drawing:
    """A chart of at least one point over the steps from first to last."""
    return drawing_of([Series(curve=curve, label="", style="")], first_step, last_step, max_points)


def drawing_of(several: Sequence[Series], first_step: int, last_step: int, max_points: int = MAX_POINTS) -> Drawing:
    """A chart of one metric of several runs, each of at least one point."""
    curves = [series.curve for series in several]
    across = Scale(first_step, last_step, LEFT, WIDTH - RIGHT, whole=True)
    lowest, highest = min(curve.lowest.value for curve in curves), max(curve.highest.value for curve in curves)
    upward = upward_scale(curves[0].metric, lowest, highest)
    return Drawing(
        name=printable(curves[0].name),
        across=[Tick(round(across.pixel(value), 1), label) for value, label in across.ticks()],
        upward=[Tick(round(upward.pixel(value), 1), label) for value, label in upward.ticks()],
        lines=[_line(series, across, upward, max_points) for series in several],
    )


def _line(series: Series, across: Scale, upward: Scale, max_points: int) -> DrawnLine:
    curve = series.curve
    stretches = list(curve.stretches(max_points))
    is_short = sum(map(len, stretches)) <= _MAX_DOTS

    def place(point: Point) -> DrawnPoint:
        x, y = round(across.pixel(point.step), 1), round(upward.pixel(point.value), 1)
        return DrawnPoint(x, y, point.step, curve.metric.text(point.value), point.value)

    return DrawnLine(
        label=printable(series.label),
        style=series.style,
        kind="line" if curve.is_dense else "guide",
        dots="dot" if is_short or not curve.is_dense else "hover",
        radius=3 if is_short else 1.5,
        stretches=[[place(point) for point in stretch] for stretch in stretches],
    )


def overlaid_svg(several: Sequence[Series], first_step: int, last_step: int) -> str:
    """`drawing_of` as SVG."""
    return drawing_svg(drawing_of(several, first_step, last_step))


def drawing_svg(drawing: Drawing, address: Address | None = None) -> str:
    """The chart as SVG: lines where steps are dense, else dots joined by a dashed line, and each point's value as its
    title. Colors are left to the page, which styles the classes. With `address` each point is a link.
    """
    lines = (
        [*_line_svg(line, address)]
        if not line.style
        else [f'<g class="{line.style}">', *_line_svg(line, address), "</g>"]
        for line in drawing.lines
    )
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(drawing.name)} over steps">',
            *_axes(drawing),
            *(part for line in lines for part in line),
            "</svg>",
        ]
    )


def _axes(drawing: Drawing) -> Iterator[str]:
    for y, label in drawing.upward:
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for x, label in drawing.across:
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>'


def _line_svg(line: DrawnLine, address: Address | None) -> Iterator[str]:
    of = f"{escape(line.label)}, " if line.label else ""
    for stretch in line.stretches:
        if len(stretch) > 1:
            places = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in stretch)
            yield f'<polyline class="{line.kind}" points="{places}"/>'
    for stretch in line.stretches:
        kind = "dot" if len(stretch) == 1 else line.dots
        radius = line.radius if kind == "dot" else 3
        for point in stretch:
            circle = (
                f'<circle class="{kind}" cx="{point.x:.1f}" cy="{point.y:.1f}" r="{radius:g}">'
                f"<title>{of}step {point.step}: {point.text}</title></circle>"
            )
            # Hundreds of links are none to go through by the Tab key.
            link = None if address is None else escape(address(line.label, point.step))
            yield circle if link is None else f'<a href="{link}" tabindex="-1">{circle}</a>'
