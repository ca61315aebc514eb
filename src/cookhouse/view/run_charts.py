"""The curves of a run: as markup for the first paint, and as plain data that `chart.js` draws while they grow."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cookhouse.printable import printable
from cookhouse.report.charts import Chart, ChartGroup
from cookhouse.report.columns import MetricColumns
from cookhouse.report.drawing import Address
from cookhouse.report.run_charts import chart_outline, run_chart
from cookhouse.telemetry import Metric, is_held_out
from cookhouse.view.pages import run_address

MAX_CHARTS: Final = 60
"""Drawn at once; a page asks for those that are seen."""
_FIRST_POINTS: Final = 120
"""Of a curve in the first paint, which the script draws anew with all that fit."""


def point_address(run: str, metric: str) -> Address:
    """Where a point leads to: what was trained on at its step; of what is held out, the answers of those weights."""
    if is_held_out(metric):
        return lambda _, step: run_address(run, f"answers?step={step}")
    return lambda _, step: run_address(run, f"steps/{step}")


def painted_groups(run: str, columns: MetricColumns, own: Mapping[str, Metric]) -> list[ChartGroup]:
    """All charts as markup, but for those behind the first ones, which the script draws when they are seen."""
    steps = columns.step_range()
    left = MAX_CHARTS
    groups = []
    for group in chart_outline(columns, own):
        painted = [_painted(run, chart, columns, own, steps) for chart in group.charts[:left]]
        groups.append(replace(group, charts=[*painted, *group.charts[left:]]))
        left = max(0, left - len(group.charts))
    return groups


def outline_json(columns: MetricColumns, own: Mapping[str, Metric]) -> list[dict[str, Any]]:
    """The groups, each with the names of its charts."""
    return [
        {
            "title": group.title,
            "is_open": group.is_open,
            "names": [printable(chart.name) for chart in group.charts],
        }
        for group in chart_outline(columns, own)
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
            "address": run_address(run, "answers?step=" if is_held_out(known[name]) else "steps/"),
        }
        for name in wanted
    }


def chart_json(chart: Chart) -> dict[str, Any]:
    """What stands in a chart."""
    return {
        "caption": chart.caption,
        "change": chart.change,
        "difference": chart.difference,
        "drawing": None if chart.drawing is None else chart.drawing.as_json(),
    }


def _painted(
    run: str, chart: Chart, columns: MetricColumns, own: Mapping[str, Metric], steps: tuple[int, int]
) -> Chart:
    curve = columns.curve(chart.name, own)
    return run_chart(curve, steps, max_points=_FIRST_POINTS, address=point_address(run, chart.name))


def group_keys(groups: Sequence[ChartGroup]) -> list[str]:
    """How a page tells its groups apart while the counts in their titles grow."""
    return [(group.title or "").partition(" ")[0] for group in groups]
