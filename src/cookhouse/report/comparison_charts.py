"""The charts of several runs: each metric of one in the same scale as that of the others."""

from collections.abc import Mapping, Sequence

from cookhouse.report.charts import Chart, ChartGroup, grouped, is_charted, is_drawn
from cookhouse.report.columns import MetricColumns
from cookhouse.report.curves import MAX_POINTS, Curve
from cookhouse.report.drawing import Address, Series, drawing_of, drawing_svg, series_style
from cookhouse.telemetry import Metric, find_metric

_FEW = 2
"""Values that the table of last values tells enough of."""


def overlaid_chart(
    metric: Metric,
    labels: Sequence[str],
    curves: Sequence[Curve | None],
    steps: tuple[int, int],
    *,
    max_points: int = MAX_POINTS,
    address: Address | None = None,
) -> Chart:
    """A metric of several runs, None where one has it not, over the steps of all; `address` as in `drawing_svg`."""
    several = [
        Series(curve=curve, label=label, style=series_style(index))
        for index, (label, curve) in enumerate(zip(labels, curves, strict=True))
        if curve is not None and curve.points
    ]
    lacking = sum(curve.num_not_finite for curve in curves if curve is not None)
    drawing = drawing_of(several, *steps, max_points) if several else None
    return Chart(
        name=metric.name,
        place=metric.chart,
        svg="" if drawing is None else drawing_svg(drawing, address),
        drawing=drawing,
        caption=f"{lacking:,} not finite" if lacking else "",
    )


def is_told(curves: Sequence[Curve | None]) -> bool:
    """True if the table of last values says enough of a metric: none of its curves is more than two points."""
    some = [curve for curve in curves if curve is not None and curve.points]
    return bool(some) and not any(map(is_drawn, some))


def comparison_outline(several: Sequence[MetricColumns], own: Mapping[str, Metric]) -> Sequence[ChartGroup]:
    """Charts in their groups, without their content."""
    names = sorted({name for columns in several for name in columns.names})
    charted = [
        find_metric(name, own)
        for name in names
        if is_charted(find_metric(name, own)) and any(columns.num_values(name) > _FEW for columns in several)
    ]
    return list(grouped([Chart(name=metric.name, place=metric.chart, svg="", caption="") for metric in charted]))
