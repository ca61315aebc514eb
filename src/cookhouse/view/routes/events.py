"""Streams of what changes: of the list of runs, and of one run."""

from collections.abc import AsyncIterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.runs.names import METRICS_FILE
from cookhouse.view.events import list_events, run_events
from cookhouse.view.listing import Line, Wanted
from cookhouse.view.paging import Paging
from cookhouse.view.place import signature_of
from cookhouse.view.position import Position


async def _of_list(request: Request) -> StreamingResponse:
    state = request.app.state
    wanted = Wanted.of(request.query_params)
    Paging.of(request, 0)  # refuses what is no number before the stream begins

    def cut(lines: list[Line]) -> list[Line]:
        return Paging.of(request, len(lines)).cut(lines)

    return _stream(list_events(state.watcher, state.listing, wanted, cut, _last_id(request)))


async def _of_run(request: Request) -> StreamingResponse:
    state = request.app.state
    run = await run_in_threadpool(state.place.run, request.path_params["name"])
    position = Position.parse(_last_id(request))
    if position is None:
        position = await run_in_threadpool(Position.of, run.path, _start(request, run.path))
    return _stream(run_events(state.watcher, state.place, run, position))


def _last_id(request: Request) -> str:
    """Browsers send the header only when they connect again by themselves."""
    return request.headers.get("last-event-id") or request.query_params.get("last-event-id", "")


def _start(request: Request, folder: Path) -> int:
    """The byte to begin at, default: the end of what is there now."""
    text = request.query_params.get("from")
    if text is None:
        signature = signature_of(folder / METRICS_FILE)
        return 0 if signature is None else signature[1]
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InputError(f"from={text!r} is not a number of bytes from 0 on")
    return int(text)


def _stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream")


ROUTES = [Route("/events/runs", _of_list), Route("/events/runs/{name:path}", _of_run)]
