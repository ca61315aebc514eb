"""The curves of a run: as markup for the first paint, and as plain data that `chart.js` draws while they grow."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cookhouse.errors import printable
from cookhouse.report.charts import Chart, ChartGroup
from cookhouse.report.columns import MetricColumns
from cookhouse.report.run_charts import chart_outline, run_chart
from cookhouse.telemetry import Metric, is_held_out
from cookhouse.view.pages import run_address

MAX_CHARTS: Final = 60
"""Drawn at once; a page asks for those that are seen."""
_FIRST_POINTS: Final = 120
"""Of a curve in the first paint, which the script draws anew with all that fit."""
_PAINTED_VALUES: Final = 40_000
"""Of all curves in the first paint together."""


def points_address(run: str, metric: str) -> str:
    """Beginning of a point's address, before its step: of what was trained on there; of what is held out, of
    what there is of those weights.
    """
    return run_address(run, "after?step=" if is_held_out(metric) else "steps/")


def painted(
    outline: Sequence[ChartGroup], num_values: Callable[[str], int], paint: Callable[[str, int], Chart], *, every: bool
) -> tuple[list[ChartGroup], int]:
    """The charts as markup, and how many of them are empty: those behind the first ones where there are very many
    values, which the script draws when they are seen; with `every` none but those behind the first `MAX_CHARTS`.

    `paint` makes the chart of a metric, of so many points at most.
    """
    left, num_left = MAX_CHARTS, _PAINTED_VALUES
    groups, num_empty = [], 0
    for group in outline:
        charts = []
        for chart in group.charts:
            is_painted = left > 0 and (every or num_left > 0)
            left, num_left = left - 1, num_left - num_values(chart.name)
            num_empty += not is_painted
            charts.append(paint(chart.name, _FIRST_POINTS) if is_painted else chart)
        groups.append(replace(group, charts=charts))
    return groups, num_empty


def painted_run(
    run: str, columns: MetricColumns, own: Mapping[str, Metric], *, every: bool
) -> tuple[list[ChartGroup], int]:
    """Charts of a run, as `painted`."""
    steps = columns.step_range()

    def paint(name: str, max_points: int) -> Chart:
        curve = columns.curve(name, own)
        start = points_address(run, name)
        return run_chart(curve, steps, max_points=max_points, address=lambda _, step: f"{start}{step}")

    return painted(chart_outline(columns, own), columns.num_values, paint, every=every)


def outline_names(groups: Sequence[ChartGroup]) -> list[dict[str, Any]]:
    """The groups, each with the names of its charts."""
    return [
        {"title": group.title, "is_open": group.is_open, "names": [printable(chart.name) for chart in group.charts]}
        for group in groups
    ]


def charts_json(
    run: str, columns: MetricColumns, own: Mapping[str, Metric], names: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Some charts by name, as far as they are there."""
    steps = columns.step_range()
    known = {printable(name): name for name in columns.names}
    wanted = [name for name in dict.fromkeys(names) if name in known][:MAX_CHARTS]
    return {
        name: {
            **chart_json(run_chart(columns.curve(known[name], own), steps)),
            "address": points_address(run, known[name]),
        }
        for name in wanted
    }


def chart_json(chart: Chart) -> dict[str, Any]:
    """Content of a chart."""
    return {
        "caption": chart.caption,
        "change": chart.change,
        "difference": chart.difference,
        "drawing": None if chart.drawing is None else chart.drawing.as_json(),
    }


def group_keys(groups: Sequence[ChartGroup]) -> list[str]:
    """Keys by which a page distinguishes its groups while the counts in their titles grow."""
    return [(group.title or "").partition(" ")[0] for group in groups]
