"""Calls of agents over HTTP: read, answered once the model has said something, and refused for good."""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cookhouse.agents.rollout import Call, Rollout
from cookhouse.dialects.errors import FieldError, field_of
from cookhouse.dialects.openai import ChatAnswer, ChatRequest, error_body
from cookhouse.errors import InputError

MAX_BODY_BYTES: Final = 32 * 2**20
"""Of a request: those of agents grow to a megabyte and more."""
_NO_RETRY: Final = {"x-should-retry": "false"}
"""The SDKs heed it. The status is 400, since clients ask again up to 30 times after 409, 429 and 5xx."""

FindRollout = Callable[[str], Rollout]


class NoRolloutError(InputError):
    """A call to an address or with a key that no rollout has, or has any more."""


def routes(find: FindRollout) -> list[Route]:
    """Routes below the addresses of rollouts."""
    return [
        Route("/{token}/v1/chat/completions", partial(_chat, find), methods=["POST"]),
        Route("/{token}/v1/models", partial(_models, find), methods=["GET"]),
        Route("/{token}", partial(_greet, find), methods=["GET"]),
        Route("/{rest:path}", _unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


async def _chat(find: FindRollout, request: Request) -> Response:
    try:
        rollout = _opened(find, request)
    except InputError as error:
        return _refusal(error)
    try:
        body = await _body(request)
        call = rollout.ask(body, ChatRequest.model_validate_json(body))
    except ClientDisconnect:
        return Response(status_code=400)  # which nobody reads
    except (InputError, ValidationError) as error:
        reason = field_of(error) if isinstance(error, ValidationError) else error
        rollout.refuse(str(reason))
        return _refusal(reason)
    return await _answered(request, rollout, call)


async def _answered(request: Request, rollout: Rollout, call: Call) -> Response:
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((call.answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            rollout.lose(call)
            return Response(status_code=400)  # which nobody reads
        partial_output, whole = call.answer.result()
    except InputError as error:
        return _refusal(error)
    finally:
        gone.cancel()
        await asyncio.wait((gone,))
    answer = ChatAnswer(
        call.request,
        model=rollout.model_name,
        prompt=call.prompt,
        streams=[rollout.stream(call)],
        texts=rollout.texts,
    )
    if not call.request.stream:
        return JSONResponse(answer.whole(whole))
    events = [*answer.chunks(partial_output), *answer.chunks(whole)]
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return Response("".join([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")


async def _models(find: FindRollout, request: Request) -> Response:
    try:
        rollout = _opened(find, request)
    except InputError as error:
        return _refusal(error)
    model: Mapping[str, Any] = {
        "id": rollout.model_name,
        "object": "model",
        "created": 0,
        "owned_by": "cookhouse",
        "max_model_len": rollout.limits.max_sequence_tokens,
    }
    return JSONResponse({"object": "list", "data": [model]})


async def _greet(find: FindRollout, request: Request) -> Response:
    """Answers the question of some clients for whether anybody is there."""
    try:
        find(request.path_params["token"])
    except InputError as error:
        return _refusal(error)
    return JSONResponse({})


async def _unknown(request: Request) -> Response:
    return _refusal(InputError(f"a rollout's address has no {request.method} {request.url.path.rpartition('/v1')[2]}"))


def _opened(find: FindRollout, request: Request) -> Rollout:
    """The rollout of an address, whose key has to come with the request. Raises `NoRolloutError`."""
    token = request.path_params["token"]
    bearer = request.headers.get("authorization", "").partition(" ")[2]
    given = [bearer.strip(), request.headers.get("x-api-key", "").strip()]
    if token not in given:
        raise NoRolloutError("there is no rollout at this address, or the key is not the one of its address")
    return find(token)


async def _body(request: Request) -> bytes:
    """Raises `InputError` for one that is too large."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise InputError(f"a request has at most {MAX_BODY_BYTES:,} bytes here")
        pieces.append(piece)
    return b"".join(pieces)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(error: InputError) -> JSONResponse:
    field, code = (error.field, error.code) if isinstance(error, FieldError) else (None, None)
    return JSONResponse(error_body(str(error), 400, field=field, code=code), status_code=400, headers=_NO_RETRY)
