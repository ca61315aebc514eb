"""The charts of one run: which of its metrics have one, and what stands next to each line."""

from collections.abc import Mapping, Sequence

from cookhouse.report.charts import Chart, ChartGroup, grouped, in_numbers, is_charted, is_drawn
from cookhouse.report.columns import MetricColumns
from cookhouse.report.curves import MAX_POINTS, Curve, Point
from cookhouse.report.drawing import Address, curve_drawing, drawing_svg
from cookhouse.telemetry import Metric, after_step, find_metric, is_held_out


def has_chart(curve: Curve) -> bool:
    """True if it is among the charts: what the table of held-out metrics says whole only if it tells most."""
    is_told = is_held_out(curve.name) and curve.metric.chart is None and curve.points and not is_drawn(curve)
    return is_charted(curve.metric) and not is_told


def run_chart(
    curve: Curve, steps: tuple[int, int], *, max_points: int = MAX_POINTS, address: Address | None = None
) -> Chart:
    """The chart of a metric over the steps of the run; `address` as in `drawing_svg`."""
    gaps = f"{curve.num_not_finite:,} not finite" if curve.num_not_finite else ""
    if not curve.points:
        return Chart(name=curve.name, place=curve.metric.chart, svg="", caption=gaps)
    if not is_drawn(curve):
        steps_text = " and ".join(str(point.step) for point in curve.points)
        where = f"step{'s' * (len(curve.points) > 1)} {steps_text}"
        return in_numbers(curve, " · ".join([where, *filter(None, [gaps])]))
    ends = {"last": curve.points[-1], "min": curve.lowest, "max": curve.highest}
    facts = [*(f"{name} {_at(curve, point)}" for name, point in ends.items()), *filter(None, [gaps])]
    drawing = curve_drawing(curve, *steps, max_points)
    return Chart(
        name=curve.name,
        place=curve.metric.chart,
        svg=drawing_svg(drawing, address),
        drawing=drawing,
        caption=" · ".join(facts),
    )


def chart_outline(columns: MetricColumns, own: Mapping[str, Metric]) -> Sequence[ChartGroup]:
    """Charts in their groups, without their content."""
    names = [name for name in columns.names if _is_charted(columns, name, own)]
    return list(grouped([Chart(name=name, place=find_metric(name, own).chart, svg="", caption="") for name in names]))


def _is_charted(columns: MetricColumns, name: str, own: Mapping[str, Metric]) -> bool:
    # What is not held out is decided by its name: no curve of thousands of points is made for that.
    return has_chart(columns.curve(name, own)) if is_held_out(name) else is_charted(find_metric(name, own))


def _at(curve: Curve, point: Point) -> str:
    when = after_step(point.step) if is_held_out(curve.name) else f"step {point.step}"
    return f"{curve.metric.text(point.value)} ({when})"
