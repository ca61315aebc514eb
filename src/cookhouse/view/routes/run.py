"""The page of a run: what it is, its curves while they grow, what it saved, its settings and its log."""

import math
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.pages import run_address
from cookhouse.report import MetricColumns
from cookhouse.report.charts import ChartGroup
from cookhouse.report.run_charts import RunCharts
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import LOG_FILE, METRICS_FILE
from cookhouse.runs.reading.log import LogPart, log_before, log_from
from cookhouse.runs.reading.metrics import read_rows
from cookhouse.runs.reading.step_rows import has_step
from cookhouse.view.pages import json_answer, page, page_and_json
from cookhouse.view.place import Place
from cookhouse.view.position import Position
from cookhouse.view.run_charts import charts_json, groups_json, points_address
from cookhouse.view.run_links import held_out_address, links_of
from cookhouse.view.run_summary import checkpoints_of, examples_of, settings_of, summary_of

_MAX_CHARACTERS: Final = 1000
_RUN: Final = "/runs/{name:path}/-/"


def _show(request: Request) -> Response:
    place, run = _asked(request)
    with place.metrics.of(run.path) as growing:
        columns = growing.look()
        charts = _run_charts(run, columns)
        values: dict[str, Any] = {
            **_summary(place, run, columns),
            "deciding": charts.deciding(whole=True),
            "groups": charts.others(whole=False),
            "position": str(Position.of(run.path, growing.end)),
            "num_broken_rows": growing.num_broken,
        }
    return page(
        "run.html",
        **values,
        **examples_of(run),
        **checkpoints_of(run, place.runs()),
        **settings_of(run),
        title=run.name,
        overoptimization=None,
        log=_log_json(log_before(run.path / LOG_FILE)),
    )


def _now(request: Request) -> Response:
    """The parts of the page that change, for its script to put in the place of those that are there."""
    place, run = _asked(request)
    with place.metrics.of(run.path) as growing:
        summary = _summary(place, run, growing.look())
    return page("run_now.html", **summary, **examples_of(run), **checkpoints_of(run, place.runs()))


def _answer(request: Request) -> Response:
    place, run = _asked(request)
    with place.metrics.of(run.path) as growing:
        columns = growing.look()
        return json_answer(
            {
                **_summary(place, run, columns),
                "metrics_end": growing.end,
                "num_broken_rows": growing.num_broken,
            }
        )


def _charts(request: Request) -> Response:
    place, run = _asked(request)
    with place.metrics.of(run.path) as growing:
        columns = growing.look()
        charts = _run_charts(run, columns)
        deciding = ChartGroup(key="deciding", charts=charts.deciding(whole=False))
        return json_answer(
            {
                "groups": groups_json([deciding, *charts.others(whole=False)]),
                "charts": charts_json(columns.names, request.query_params.getlist("name"), charts.chart),
                "end": growing.end,
            }
        )


def _metrics(request: Request) -> Response:
    _, run = _asked(request)
    found = read_rows(run.path / METRICS_FILE, _number(request, "from") or 0)
    rows = [{name: _plain(value) for name, value in row.items()} for row in found.rows]
    return json_answer(
        {"rows": rows, "from": found.start, "to": found.end, "size": found.size, "num_broken": found.num_broken}
    )


def _log(request: Request) -> dict[str, Any]:
    _, run = _asked(request)
    path, start = run.path / LOG_FILE, _number(request, "from")
    found = log_before(path, _number(request, "before")) if start is None else log_from(path, start)
    return {"name": run.name, "log": _log_json(found)}


def _checkpoints(request: Request) -> Response:
    place, run = _asked(request)
    return json_answer({"name": run.name, **checkpoints_of(run, place.runs())})


def _settings(request: Request) -> Response:
    _, run = _asked(request)
    return json_answer({"name": run.name, **settings_of(run)})


def _go(request: Request) -> Response:
    """From a form, which cannot make a path, to the page of a step."""
    _, run = _asked(request)
    return RedirectResponse(run_address(run.name, f"steps/{_number(request, 'step') or 1}"), status_code=303)


def _after(request: Request) -> Response:
    """From a point of a held-out curve to what there is to read of those weights."""
    _, run = _asked(request)
    step = _number(request, "step") or 0
    metrics = run.path / METRICS_FILE
    is_there = has_step(metrics, request.app.state.rollouts.lines(metrics), step - 1)
    return RedirectResponse(held_out_address(run, step, has_step=is_there), status_code=303)


def _summary(place: Place, run: FoundRun, columns: MetricColumns) -> dict[str, Any]:
    return {**summary_of(run, columns), "links": links_of(run, place)}


def _run_charts(run: FoundRun, columns: MetricColumns) -> RunCharts:
    return RunCharts(columns, run.history.declared, partial(points_address, run.name))


def _asked(request: Request) -> tuple[Place, FoundRun]:
    place: Place = request.app.state.place
    return place, place.run(request.path_params["name"])


def _number(request: Request, name: str) -> int | None:
    """A whole number of the query, if it has one.

    Raises:
        InputError: it is something else.
    """
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise InputError(f"{name}={text[:50]!r} is no whole number from 0 on")
    return int(text)


def _log_json(part: LogPart) -> dict[str, Any]:
    return {"lines": part.lines, "from": part.start, "to": part.end, "size": part.size}


def _plain(value: Any) -> Any:
    """A value of a row as JSON has it: of what is not finite, the name; of what is no value of a metric, its text."""
    is_plain = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)[:_MAX_CHARACTERS]


ROUTES = [
    Route(_RUN, _show),
    Route(f"{_RUN}now", _now),
    Route(f"/api{_RUN}", _answer),
    Route(f"/api{_RUN}charts", _charts),
    Route(f"/api{_RUN}metrics", _metrics),
    Route(f"/api{_RUN}checkpoints", _checkpoints),
    Route(f"/api{_RUN}settings", _settings),
    Route(f"{_RUN}go", _go),
    Route(f"{_RUN}after", _after),
    *page_and_json(f"{_RUN}log", _log, "log.html"),
]
