"""The page of several runs: what differs, and their curves over each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.pages import document
from cookhouse.report.charts import Chart, is_charted, series_style
from cookhouse.report.comparison import ComparedMetric, Comparison, declared_by, setting_text, telling
from cookhouse.report.comparison_charts import ComparedCharts
from cookhouse.report.setting_chart import setting_charts
from cookhouse.report.sweep import SweepRow, SweepTable

_MAX_TELLING = 12
"""Of metrics none of which has a place: shown without a click."""
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
    runs = dict(zip(comparison.names, comparison.columns, strict=True))
    charts = ComparedCharts(runs, declared_by(comparison.records))
    return document(
        "comparison.html",
        title=f"{len(comparison.names)} runs compared" if sweep is None else f"A sweep of {len(sweep.rows)} runs",
        sweep=None if sweep is None else _sweep(sweep),
        scripts=("dom", "fold", "chart"),
        groups=charts.groups(whole=True),
        query="",
        **comparison_values(comparison),
    )


def comparison_values(comparison: Comparison, addresses: Sequence[str | None] | None = None) -> dict[str, Any]:
    """Values of a page of runs side by side besides their curves, as `comparison_body.html` names it; `addresses` are
    those of the pages of the runs.
    """
    tells = telling(comparison.metrics)
    shown = [each for each in tells if each.metric.chart is not None] or tells[:_MAX_TELLING]
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
