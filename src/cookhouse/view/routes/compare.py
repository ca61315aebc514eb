"""Several runs side by side: the settings that differ, their last values, and their curves over each other."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.pages import run_address
from cookhouse.report import MetricColumns, RunRecord
from cookhouse.report.comparison import compare_columns, declared_by
from cookhouse.report.comparison_charts import ComparedCharts
from cookhouse.report.comparison_page import comparison_values
from cookhouse.runs.record import read_record
from cookhouse.telemetry import Metric
from cookhouse.view.pages import json_answer, page
from cookhouse.view.place import Place
from cookhouse.view.run_charts import charts_json, groups_json, points_address

MAX_RUNS: Final = 8
"""Compared at once: as many as there are colors."""


def _show(request: Request) -> Response:
    names = _names(request)
    if len(names) < 2:
        place: Place = request.app.state.place
        return page("compare.html", names=names, every=[run.name for run in place.runs()], max_runs=MAX_RUNS)
    with _columns(request, names) as columns:
        records = _records(request, names)
        groups = _compared(columns, declared_by(list(records.values()))).groups(whole=False)
        values = comparison_values(compare_columns(records, columns), [run_address(name) for name in names])
    query = urlencode([("run", name) for name in names])
    return page(
        "comparison.html", title=f"{len(names)} runs compared", query=query, groups=groups, sweep=None, **values
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
        charts = _compared(columns, own)
        known = {name for each in columns.values() for name in each.names}
        return json_answer(
            {
                "groups": groups_json(charts.groups(whole=False)),
                "charts": charts_json(known, request.query_params.getlist("name"), charts.chart),
            }
        )


def _compared(columns: Mapping[str, MetricColumns], own: Mapping[str, Metric]) -> ComparedCharts:
    return ComparedCharts(columns, own, points_address)


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
