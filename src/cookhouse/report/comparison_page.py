"""The page of several runs: what differs, and their curves over each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.report.charts import Chart, grouped, is_charted
from cookhouse.report.comparison import ComparedMetric, Comparison, setting_text, telling
from cookhouse.report.comparison_charts import is_told, overlaid_chart
from cookhouse.report.curves import Curve, step_range
from cookhouse.report.drawing import series_style
from cookhouse.report.page import render
from cookhouse.report.setting_chart import setting_charts
from cookhouse.report.sweep import SweepRow, SweepTable
from cookhouse.telemetry import Metric

_FACTS = ("state", "started", "duration", "machine")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A run in the legend."""

    name: str
    style: str
    address: str | None = None
    """Of its page, if it has one."""


@dataclass(frozen=True, kw_only=True)
class _Value:
    text: str
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class _Row:
    name: str
    values: Sequence[_Value]
    note: str


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], _Value | None]]
    """The cells of a run, and its value of the metric, if there is one."""
    charts: Sequence[Chart]
    remark: str


def comparison_page(comparison: Comparison, sweep: SweepTable | None = None) -> str:
    """One self-contained page of runs side by side; of those of a sweep, with what came of each setting above."""
    steps = step_range(curve for curves in comparison.curves.values() for curve in curves if curve is not None)
    charts = [
        overlaid_chart(metric, comparison.names, curves, steps)
        for _, curves in sorted(comparison.curves.items())
        if is_charted(metric := _metric_of(curves)) and not is_told(curves)
    ]
    return render(
        "comparison.html",
        title=f"{len(comparison.names)} runs compared" if sweep is None else f"a sweep of {len(sweep.rows)} runs",
        sweep=None if sweep is None else _sweep(sweep),
        chart_groups=list(grouped(charts)),
        **comparison_values(comparison),
    )


def comparison_values(comparison: Comparison, addresses: Sequence[str | None] | None = None) -> dict[str, Any]:
    """Values of a page of runs side by side besides their curves, as `comparison_body.html` names it; `addresses` are
    those of the pages of the runs.
    """
    shown = telling(comparison.metrics)
    return {
        "runs": [
            _Entry(name=name, style=series_style(index), address=address)
            for index, (name, address) in enumerate(
                zip(comparison.names, addresses or [None] * len(comparison.names), strict=True)
            )
        ],
        "facts": list(_facts(comparison)),
        "settings": [
            (setting.name, [setting_text(value) for value in setting.values]) for setting in comparison.settings
        ],
        "num_unshared": comparison.num_unshared,
        "metrics": [_metric(metric) for metric in shown],
        "other_metrics": [
            _metric(metric) for metric in comparison.metrics if is_charted(metric.metric) and metric not in shown
        ],
        "gaps": [
            f"{name}: {gap}"
            for name, record in zip(comparison.names, comparison.records, strict=True)
            for gap in record.gaps
        ],
    }


def _sweep(table: SweepTable) -> _Sweep:
    return _Sweep(
        columns=[
            "run",
            *table.swept,
            "state",
            *(["steps"] if table.has_steps else []),
            *([] if table.metric is None else [table.metric.name]),
        ],
        rows=[
            (
                [row.name, *map(setting_text, row.settings.values()), row.state, *_steps(table, row)],
                None if table.metric is None else _Value(text=table.text(row), is_best=row.is_best),
            )
            for row in table.rows
        ],
        charts=setting_charts(table),
        remark=table.remark,
    )


def _steps(table: SweepTable, row: SweepRow) -> list[str]:
    if not table.has_steps:
        return []
    return ["-" if row.steps is None else f"{row.steps:,}"]


def _facts(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Of each run, by what they are; those that nothing is known of are left out."""
    models = [str(record.config.get("config", {}).get("model_name", "-")) for record in comparison.records]
    recipes = [str(record.config.get("recipe", "-")) for record in comparison.records]
    told = [(name, [record.facts.get(name, "-") for record in comparison.records]) for name in _FACTS]
    return [("recipe", recipes), ("model", models), *((name, some) for name, some in told if set(some) != {"-"})]


def _metric(compared: ComparedMetric) -> _Row:
    values = zip(compared.texts, compared.best, strict=True)
    return _Row(
        name=compared.name,
        values=[_Value(text=text, is_best=is_best) for text, is_best in values],
        note=compared.note,
    )


def _metric_of(curves: Sequence[Curve | None]) -> Metric:
    return next(curve.metric for curve in curves if curve is not None)
