"""Two weights, one question, side by side; and which answer was better."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.telemetry import strict_json
from cookhouse.view.pages import page_and_json
from cookhouse.view.playground.answers import Event
from cookhouse.view.playground.labels import LABELS
from cookhouse.view.playground.question import MAX_CHARACTERS, MAX_TOKENS, Question, question_from
from cookhouse.view.playground.weights import choices, named_pair, shown_pair

_MAX_BODY_BYTES: Final = 1 << 18


def _read(request: Request) -> dict[str, Any]:
    playground = request.app.state.playground
    query = request.query_params
    names, problem = query.getlist("weights")[:2], None
    try:
        names = [*shown_pair(names, playground.place)]
    except InputError as error:
        problem = str(error)
    return {
        "weights": [*names, "", ""][:2],
        "problem": problem,
        "choices": [{"name": choice.name, "note": choice.note} for choice in choices(playground.place)],
        "prompt": query.get("prompt", "")[:MAX_CHARACTERS],
        "system": query.get("system", "")[:MAX_CHARACTERS],
        "defaults": {
            "seed": Question.seed,
            "temperature": Question.temperature,
            "max_tokens": Question.max_tokens,
        },
        "most": {"characters": MAX_CHARACTERS, "tokens": MAX_TOKENS},
        "service": playground.service,
        "is_running": playground.shared_service.is_running,
        "labels": {"names": [*LABELS], "file": str(playground.labels.path), "command": playground.labels.command()},
    }


async def _answer(request: Request) -> Response:
    """A question, answered as lines of JSON, one for each event, as they happen."""
    playground = request.app.state.playground
    question = question_from(await _body(request))
    playground.check_room()
    targets = await anyio.to_thread.run_sync(named_pair, question.weights, playground.place)
    return StreamingResponse(_lines(playground.events(question, targets)), media_type="application/x-ndjson")


async def _label(request: Request) -> Response:
    playground = request.app.state.playground
    body = await _body(request)
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in ("answers", "label")):
        raise InputError(f"a label is a JSON object of answers, their id, and label: {', '.join(LABELS)}")
    labeled = await anyio.to_thread.run_sync(playground.labels.label, body["answers"], body["label"])
    return JSONResponse({"line": labeled.line, "file": str(playground.labels.path), "command": labeled.command})


async def _lines(events: AsyncGenerator[Event]) -> AsyncIterator[str]:
    async with aclosing(events):
        async for event in events:
            yield f"{strict_json(event)}\n"


async def _body(request: Request) -> object:
    """Body that was sent, of JSON and not too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"this takes application/json, not {kind or 'a body without a type'!r:.100}")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"this takes {_MAX_BODY_BYTES:,} bytes at most; send less")
    try:
        return json.loads(received)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON ({error})") from error


ROUTES = [
    *page_and_json("/playground", _read, "playground.html"),
    Route("/api/playground/answers", _answer, methods=["POST"]),
    Route("/api/playground/labels", _label, methods=["POST"]),
]
