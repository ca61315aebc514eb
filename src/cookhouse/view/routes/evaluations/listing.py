"""All evaluations of the place: those that stand alone, and those of training runs."""

from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, ATTEMPT_GRADES_FILE, METRICS_FILE, SAMPLES_FOLDER
from cookhouse.runs.reading.answer_sets import is_evaluation
from cookhouse.runs.reading.evaluations import Measured, last_measured, measured_so_far
from cookhouse.runs.samples import evaluated_steps
from cookhouse.view.changes import change_stream, position_of
from cookhouse.view.pages import page_and_json
from cookhouse.view.paging import Paging
from cookhouse.view.place import Place, signature_of
from cookhouse.view.routes.evaluations.sides import ANSWERS, facts_of

_READ: Final = (METRICS_FILE, SAMPLES_FOLDER, ATTEMPT_ANSWERS_FILE, ATTEMPT_GRADES_FILE)
_MAX_KEPT: Final = 5000
_MAX_FIGURES: Final = 6
"""Of a run on a line."""

_lock = Lock()
_kept: OrderedDict[Any, dict[str, Any] | None] = OrderedDict()


def _list(request: Request) -> dict[str, Any]:
    place: Place = request.app.state.place
    position = position_of(_signs(place))
    wanted = request.query_params.get("text", "").casefold()
    found = [line for run in reversed(place.runs()) if (line := _line(run)) is not None and wanted in _text(line)]
    paging = Paging.of(request, len(found))
    return {
        "folder": str(place.folder),
        "text": request.query_params.get("text", ""),
        "evaluations": paging.cut(found),
        "paging": paging.as_json(),
        "position": position,
    }


def _line(run: FoundRun) -> dict[str, Any] | None:
    """Line of results of an evaluation, or of a training run with some; None of a run that has measured nothing."""
    key = (*_signs_of(run), run.number)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    line = _read_line(run)
    with _lock:
        _kept[key] = line
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    return line


def _read_line(run: FoundRun) -> dict[str, Any] | None:
    stands_alone = is_evaluation(run.path)
    steps = [] if stands_alone else list(evaluated_steps(run.path))
    figures = last_measured(run.path, run.history.declared)
    progress = None
    if stands_alone and run.history.status != RunStatus.FINISHED:
        index = ANSWERS.index(run.path)
        figures = measured_so_far(index) or figures
        progress = {"graded": len(index.grades), "asked": len(index.questions) or None}
    if not (stands_alone or steps or figures):
        return None
    return {
        **facts_of(run),
        "number": run.number,
        "stands_alone": stands_alone,
        "steps": steps,
        "figures": [_figure(each) for each in figures[:_MAX_FIGURES]],
        "num_more": max(0, len(figures) - _MAX_FIGURES),
        "progress": progress,
    }


def _figure(measured: Measured) -> dict[str, Any]:
    return {
        "metric": measured.metric.name,
        "label": measured.metric.label or measured.metric.name.removeprefix("test/"),
        "step": measured.step,
        "value": measured.value,
        "stderr": measured.stderr,
        "n": measured.n,
        "text": measured.text,
    }


def _text(line: dict[str, Any]) -> str:
    told = (line["run"], line["recipe"], line["model"], line["status"], *(each["metric"] for each in line["figures"]))
    return "\n".join(str(each) for each in told if each is not None).casefold()


def _signs(place: Place) -> list[Any]:
    return [_signs_of(run) for run in place.runs()]


def _signs_of(run: FoundRun) -> tuple[Any, ...]:
    return run.name, str(run.history.status), *(signature_of(run.path / name) for name in _READ)


async def _events(request: Request) -> StreamingResponse:
    return change_stream(request, "evaluations", partial(_signs, request.app.state.place))


ROUTES = [*page_and_json("/evaluations", _list, "evaluations.html"), Route("/events/evaluations", _events)]
