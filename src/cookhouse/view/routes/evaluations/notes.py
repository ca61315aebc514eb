"""Notes of evaluators, evaluation by evaluation."""

import json
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import EVALUATIONS_FOLDER
from cookhouse.telemetry import Entry, after_step, entries_from_json, strict_json
from cookhouse.view.pages import page
from cookhouse.view.paging import Paging

_MAX_BYTES: Final = 1 << 23


def _told(request: Request) -> tuple[dict[str, Any], list[Entry], list[Any]]:
    """Values that page and JSON share; and the entries as both show them."""
    run: FoundRun = request.app.state.place.run(request.query_params.get("run", ""))
    files = filter(Path.is_file, (run.path / EVALUATIONS_FOLDER).glob("*.json"))
    names = sorted((path.stem for path in files), reverse=True)
    paging = Paging.of(request, len(names))
    chosen = request.query_params.get("note") or next(iter(names), None)
    told: dict[str, Any] = {"run": run.name, "notes": paging.cut(names), "paging": paging.as_json(), "note": chosen}
    if chosen is None:
        return {**told, "title": f"{run.name}: nothing was noted"}, [], []
    if chosen not in names:
        raise UnknownNameError("note", chosen, names)
    record = _record(run, chosen)
    entries = entries_from_json(record["entries"])
    return {**told, "title": f"{record['evaluator']} {after_step(record['step'])}"}, entries, record["entries"]


def _record(run: FoundRun, name: str) -> dict[str, Any]:
    """A file of notes; its name is one of those found."""
    path = run.path / EVALUATIONS_FOLDER / f"{name}.json"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path.name} is larger than {_MAX_BYTES >> 20} MiB")
        record = json.loads(path.read_text(encoding="utf-8"))
        return {"evaluator": str(record["evaluator"]), "step": int(record["step"]), "entries": list(record["entries"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.name} of {run.name} does not hold notes: {error!r:.200}") from error


def _show(request: Request) -> Response:
    told, entries, _ = _told(request)
    return page("evaluation_notes.html", **told, entries=entries)


def _answer(request: Request) -> Response:
    told, _, plain = _told(request)
    return Response(strict_json({**told, "entries": plain}), media_type="application/json")


ROUTES = [Route("/evaluations/notes", _show), Route("/api/evaluations/notes", _answer)]
