"""Several runs side by side: the settings that differ, their last values, and their curves over each other."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cookhouse.errors import InputError, printable
from cookhouse.report import MetricColumns, RunRecord
from cookhouse.report.charts import Chart
from cookhouse.report.comparison import compare_columns, declared_by
from cookhouse.report.comparison_charts import comparison_outline, overlaid_chart
from cookhouse.report.comparison_page import comparison_values
from cookhouse.report.curves import MAX_POINTS
from cookhouse.runs.record import read_record
from cookhouse.telemetry import Metric, find_metric
from cookhouse.view.pages import json_answer, page, run_address
from cookhouse.view.place import Place
from cookhouse.view.run_charts import MAX_CHARTS, chart_json, group_keys, outline_names, painted, points_address

MAX_RUNS: Final = 8
"""Compared at once: as many as there are colors."""


def _show(request: Request) -> Response:
    names = _names(request)
    if len(names) < 2:
        place: Place = request.app.state.place
        return page("compare.html", names=names, every=[run.name for run in place.runs()], max_runs=MAX_RUNS, query="")
    with _columns(request, names) as columns:
        records = _records(request, names)
        own = declared_by(list(records.values()))
        groups, num_empty = painted(
            comparison_outline(list(columns.values()), own),
            lambda metric: sum(each.num_values(metric) for each in columns.values()),
            lambda metric, max_points: _chart(metric, columns, own, max_points),
            every=request.query_params.get("charts") == "all",
        )
        values = comparison_values(compare_columns(records, columns), [run_address(name) for name in names])
    return page(
        "compare.html",
        names=names,
        query=urlencode([("run", name) for name in names]),
        num_empty=num_empty,
        chart_groups=list(zip(group_keys(groups), groups, strict=True)),
        **values,
    )


def _answer(request: Request) -> Response:
    names = _names(request, at_least=2)
    with _columns(request, names) as columns:
        values = comparison_values(compare_columns(_records(request, names), columns))
    plain = {name: [asdict(each) for each in values[name]] for name in ("runs", "metrics", "other_metrics")}
    return json_answer({"names": names, **values, **plain})


def _charts(request: Request) -> Response:
    names = _names(request, at_least=2)
    place: Place = request.app.state.place
    own = {name: metric for run in names for name, metric in place.run(run).history.declared.items()}
    with _columns(request, names) as columns:
        several = list(columns.values())
        known = {printable(name): name for each in several for name in each.names}
        wanted = [name for name in dict.fromkeys(request.query_params.getlist("name")) if name in known][:MAX_CHARTS]
        charts = {
            name: {
                **chart_json(_chart(known[name], columns, own)),
                "addresses": {printable(run): points_address(run, known[name]) for run in names},
            }
            for name in wanted
        }
        return json_answer({"groups": outline_names(comparison_outline(several, own)), "charts": charts})


def _chart(
    metric: str, columns: Mapping[str, MetricColumns], own: Mapping[str, Metric], max_points: int = MAX_POINTS
) -> Chart:
    curves = [each.curve(metric, own) if each.num_values(metric) else None for each in columns.values()]
    ends = [each.step_range() for each in columns.values()]
    steps = min(first for first, _ in ends), max(last for _, last in ends)
    return overlaid_chart(
        find_metric(metric, own),
        list(columns),
        curves,
        steps,
        max_points=max_points,
        address=lambda run, step: f"{points_address(run, metric)}{step}",
    )


@contextmanager
def _columns(request: Request, names: list[str]) -> Iterator[dict[str, MetricColumns]]:
    """The metrics of some runs, held together; always in the same order, so that two pages do not wait for each other
    for ever.
    """
    place: Place = request.app.state.place
    with ExitStack() as held:
        looked = {name: held.enter_context(place.metrics.of(place.run(name).path)).look() for name in sorted(names)}
        yield {name: looked[name] for name in names}


def _records(request: Request, names: list[str]) -> dict[str, RunRecord]:
    place: Place = request.app.state.place
    return {name: read_record(place.run(name).path, reads_metrics=False) for name in names}


def _names(request: Request, at_least: int = 0) -> list[str]:
    """The runs of the query.

    Raises:
        UnknownNameError: one of them is not there.
        InputError: there are too many of them, or too few.
    """
    place: Place = request.app.state.place
    names = [place.run(name).name for name in dict.fromkeys(request.query_params.getlist("run"))]
    if len(names) > MAX_RUNS:
        raise InputError(f"{len(names)} runs are too many to compare; {MAX_RUNS} are allowed, each as run=NAME")
    if len(names) < at_least:
        raise InputError("name two runs at least, as in ?run=first&run=second")
    return names


ROUTES = [
    Route("/compare", _show),
    Route("/api/compare", _answer),
    Route("/api/compare/charts", _charts),
]
