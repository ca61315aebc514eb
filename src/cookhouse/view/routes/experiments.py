"""Sweeps: all of the place, and each with its settings against the metric."""

import json
import math
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.pages import run_address
from cookhouse.report import ABSENT, SweepRow, SweepTable, setting_charts, setting_text
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.listing.overview import RunOverview
from cookhouse.runs.names import SWEEP_RECIPE
from cookhouse.sweeps.reading import SweepReader, stamp_of, sweep_counts
from cookhouse.sweeps.record import SweepRecord, best_text, rung_states
from cookhouse.telemetry import strict_json
from cookhouse.view.changes import change_stream, position_of
from cookhouse.view.pages import page, page_and_json
from cookhouse.view.paging import Paging
from cookhouse.view.place import Place

_READER = SweepReader()
_MAX_ERRORS = 20
_SETTING = "settings."
"""What the name of a column begins with that is a setting."""


def _list(request: Request) -> dict[str, Any]:
    place: Place = request.app.state.place
    position = position_of(_signs(place))
    overviews = place.overviews()
    sweeps = {run.name: run for run in _sweeps(place)}
    parts: dict[str, list[RunOverview]] = {name: [] for name in sweeps}
    for overview in overviews:
        if overview.parent in parts:
            parts[overview.parent].append(overview)
    found = [overview for overview in overviews if overview.name in sweeps]
    paging = Paging.of(request, len(found))
    lines = [_line(sweeps[each.name], each, parts[each.name]) for each in paging.cut(found)]
    return {"folder": str(place.folder), "experiments": lines, "paging": paging.as_json(), "position": position}


def _sweeps(place: Place) -> list[FoundRun]:
    return [run for run in place.runs() if run.record.get("recipe") == SWEEP_RECIPE]


def _line(run: FoundRun, overview: RunOverview, parts: Sequence[RunOverview]) -> dict[str, Any]:
    runs = run.record["config"].get("runs", ())
    at_rungs = rung_states(run.path)
    states = [str(part.status) for part in parts]
    states = [
        at_rungs.get(part.name.rpartition("/")[2], state) if state == RunStatus.INTERRUPTED else state
        for part, state in zip(parts, states, strict=True)
    ]
    return {
        "name": overview.name,
        "recipe": overview.recipe,
        "model": overview.model,
        "status": overview.status,
        "num_runs": len(runs),
        "by_state": {state: states.count(state) for state in dict.fromkeys(states)},
        "num_planned": max(0, len(runs) - len(parts)),
        "headline": None if overview.headline is None else overview.headline.text,
        "started_at": overview.started_at.isoformat(timespec="seconds"),
    }


def _sweep(request: Request) -> tuple[FoundRun, SweepRecord]:
    run = _sweep_run(request.app.state.place, request.path_params["name"])
    return run, _READER.read(run.path)


def _sweep_run(place: Place, name: str) -> FoundRun:
    run = place.run(name)
    if run.record.get("recipe") != SWEEP_RECIPE:
        raise InputError(f"{run.name} is no sweep; its page is {run_address(run.name)}")
    return run


def _show(request: Request) -> Response:
    position = position_of(_signs(request.app.state.place, request.path_params["name"]))
    run, sweep = _sweep(request)

    def address_of(row: SweepRow) -> str | None:
        return run_address(f"{run.name}/{row.name}") if row.name in sweep.seconds else None

    return page(
        "experiment.html",
        **_report(request, run, sweep),
        charts=setting_charts(sweep.table, address_of),
        columns=_columns(request, sweep),
        errors=[(_number(name), error) for name, error in list(sweep.errors.items())[:_MAX_ERRORS]],
        position=position,
    )


def _answer(request: Request) -> Response:
    return Response(strict_json(_report(request, *_sweep(request))), media_type="application/json")


async def _events(request: Request) -> StreamingResponse:
    place, name = request.app.state.place, request.path_params.get("name")
    if name is not None:
        await run_in_threadpool(_sweep_run, place, name)
    return change_stream(request, ("experiments", name), partial(_signs, place, name))


def _signs(place: Place, name: str | None = None) -> Any:
    """Signs of what there is to see of one sweep, or of all. Raises `UnknownNameError` once it was deleted."""
    runs = place.runs()
    names = {run.name for run in runs if run.record.get("recipe") == SWEEP_RECIPE}
    if name is not None:
        _sweep_run(place, name)
        names = {name}
    some = [run for run in runs if run.name in names or run.parent in names]
    return [(run.name, str(run.history.status), stamp_of(run.path)) for run in some]


def _report(request: Request, run: FoundRun, sweep: SweepRecord) -> dict[str, Any]:
    table, settings = sweep.table, run.record["config"]
    jobs = settings.get("jobs")
    counts = sweep_counts(sweep, jobs if isinstance(jobs, int) else 1)
    paging = Paging.of(request, len(table.rows))
    status = run.history.status
    left = status in (RunStatus.INTERRUPTED, RunStatus.FAILED)
    return {
        "name": run.name,
        "recipe": str(settings.get("recipe")),
        "model": settings.get("model_name"),
        "status": status,
        "error": run.problem or run.history.error,
        "num_runs": len(table.rows),
        "by_state": counts.by_state,
        "num_left": counts.num_left,
        "seconds_left": counts.seconds_left if status == RunStatus.RUNNING else None,
        "swept": list(table.swept),
        "metric": None if table.metric is None else table.metric.name,
        "direction": table.way,
        "label": None if table.metric is None else table.metric.label,
        "best": None if table.best is None else _row(run, sweep, table.best),
        "best_text": best_text(sweep),
        "remark": table.remark,
        "rungs": None if sweep.halving is None else list(sweep.halving.rungs),
        "has_steps": table.has_steps,
        "sort": request.query_params.get("sort"),
        "order": request.query_params.get("order", "ascending"),
        "runs": [_row(run, sweep, row) for row in paging.cut(_sorted(request, table))],
        "paging": paging.as_json(),
        "problems": _problems(sweep),
        "resume": f"cookhouse runs resume {shlex.quote(str(run.path))}" if left else None,
    }


def _problems(sweep: SweepRecord) -> list[str]:
    """Notes on what cannot be read; what a run simply has not written is left to its own page."""
    torn = [(name, gap) for name, record in sweep.records.items() for gap in record.gaps if "cannot be read" in gap]
    return [f"{name}: {problem}" for name, problem in [*sweep.problems.items(), *torn]]


def _row(run: FoundRun, sweep: SweepRecord, row: SweepRow) -> dict[str, Any]:
    is_finite = row.value is not None and math.isfinite(row.value)
    return {
        "name": row.name,
        "number": _number(row.name),
        "run": f"{run.name}/{row.name}" if row.name in sweep.seconds else None,
        "settings": {name: value for name, value in row.settings.items() if value is not ABSENT},
        "shown": [setting_text(value) for value in row.settings.values()],
        "state": row.state,
        "steps": row.steps,
        "outcome": None if sweep.halving is None else sweep.halving.outcomes.get(row.name),
        "value": row.value if is_finite else None,
        "stderr": row.stderr,
        "text": sweep.table.text(row),
        "is_best": row.is_best,
        "error": sweep.errors.get(row.name),
    }


def _number(name: str) -> str:
    """Of a run, as the sweep counts them: what its name begins with."""
    return name.partition("-")[0]


def _sorted(request: Request, table: SweepTable) -> list[SweepRow]:
    """By a column, what is missing or not finite last either way; by none, in the order of the sweep."""
    column, order = request.query_params.get("sort"), request.query_params.get("order", "ascending")
    if order not in ("ascending", "descending"):
        raise InputError(f"order is ascending or descending, not {order!r}")
    if column is None:
        return list(table.rows)
    if column not in _names(table):
        raise UnknownNameError("column", column, _names(table))
    keys = {row.name: _key(row, column) for row in table.rows}
    there = [row for row in table.rows if keys[row.name] is not None]
    there.sort(key=lambda row: keys[row.name] or (0, 0.0, ""), reverse=order == "descending")
    return there + [row for row in table.rows if keys[row.name] is None]


def _names(table: SweepTable) -> list[str]:
    return ["run", "value", *(_SETTING + name for name in table.swept), "state", *_steps(table)]


def _steps(table: SweepTable) -> list[str]:
    """The name of the column of steps, where there is one."""
    return ["steps"] if table.has_steps else []


def _key(row: SweepRow, column: str) -> tuple[int, float, str] | None:
    """Numbers before texts."""
    if column.startswith(_SETTING):
        value = row.settings[column.removeprefix(_SETTING)]
    else:
        value = {"run": row.name, "state": row.state, "value": row.value, "steps": row.steps}[column]
    if value is None or value is ABSENT:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "") if math.isfinite(value) else None
    return 1, 0.0, value if isinstance(value, str) else json.dumps(value, default=str)


def _columns(request: Request, sweep: SweepRecord) -> list[dict[str, Any]]:
    """Of the table: name, address that sorts by it, and how it is sorted."""
    table = sweep.table
    titles = ["run", "value" if table.metric is None else table.metric.name, *table.swept, "state", *_steps(table)]
    sort, order = request.query_params.get("sort"), request.query_params.get("order", "ascending")
    columns = []
    for name, title in zip(_names(table), titles, strict=True):
        is_sorted = name == sort
        turned = "descending" if is_sorted and order == "ascending" else "ascending"
        address = "?" + urlencode({"sort": name, "order": turned}, quote_via=quote, errors="replace")
        columns.append({"title": title, "address": address, "sorted": order if is_sorted else None})
    return columns


ROUTES = [
    *page_and_json("/experiments/", _list, "experiments.html"),
    Route("/experiments/{name:path}", _show),
    Route("/api/experiments/{name:path}", _answer),
    Route("/events/experiments/", _events),
    Route("/events/experiments/{name:path}", _events),
]
