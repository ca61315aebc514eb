"""The curves of a page that is live: the names of all, and the content of those that are seen."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from cookhouse.errors import printable
from cookhouse.pages import run_address
from cookhouse.report.charts import Chart, ChartGroup
from cookhouse.telemetry import is_held_out

MAX_CHARTS: Final = 60
"""Drawn at once; a page asks for those that are seen."""


def points_address(run: str, metric: str) -> str:
    """Beginning of a point's address, before its step: of what was trained on there; of what is held out, of
    what there is of those weights.
    """
    return run_address(run, "after?step=" if is_held_out(metric) else "steps/")


def groups_json(groups: Sequence[ChartGroup]) -> list[dict[str, Any]]:
    """The groups, each with the names of its charts, and what never changed."""
    return [
        {
            "key": group.key,
            "title": group.title,
            "names": [printable(chart.name) for chart in group.charts if not chart.constant],
            "constants": [[printable(chart.name), chart.constant] for chart in group.charts if chart.constant],
        }
        for group in groups
    ]


def charts_json(known: Collection[str], names: Collection[str], chart: Callable[[str], Chart]) -> dict[str, Any]:
    """Some charts by name, as far as they are there."""
    by_name = {printable(name): name for name in known}
    wanted = [name for name in dict.fromkeys(names) if name in by_name][:MAX_CHARTS]
    return {name: chart(by_name[name]).as_json() for name in wanted}
