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

from cookhouse.agents.dialect import DIALECTS, MESSAGES, Asked, Dialect, openai_error
from cookhouse.agents.rollout import Call, Rollout
from cookhouse.dialects.anthropic import CountRequest
from cookhouse.dialects.errors import field_of
from cookhouse.dialects.openai import ResponsesAnswer
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
        *(Route(f"/{{token}}/v1/{one.path}", partial(_ask, one, find), methods=["POST"]) for one in DIALECTS),
        Route("/{token}/v1/messages/count_tokens", partial(_count, find), methods=["POST"]),
        Route("/{token}/v1/models", partial(_models, find), methods=["GET"]),
        Route("/{token}", partial(_greet, find), methods=["GET"]),
        Route("/{rest:path}", _unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


async def _ask(dialect: Dialect, find: FindRollout, request: Request) -> Response:
    try:
        rollout = _opened(find, request)
    except InputError as error:
        return _refusal(error, dialect.error_body)
    try:
        body = await _body(request)
        asked = dialect.read(rollout, body)
        call = rollout.ask(dialect.path.encode() + body, asked.request)
    except ClientDisconnect:
        return Response(status_code=400)  # which nobody reads
    except (InputError, ValidationError) as error:
        reason = field_of(error) if isinstance(error, ValidationError) else error
        rollout.refuse(str(reason))
        return _refusal(reason, dialect.error_body)
    return await _answered(dialect, request, rollout, asked, call)


async def _answered(dialect: Dialect, request: Request, rollout: Rollout, asked: Asked, call: Call) -> Response:
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((call.answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            rollout.lose(call)
            return Response(status_code=400)  # which nobody reads
        partial_output, whole = call.answer.result()
    except InputError as error:
        return _refusal(error, dialect.error_body)
    finally:
        gone.cancel()
        await asyncio.wait((gone,))
    answer = asked.new_answer(
        call.request,
        model=rollout.model_name,
        prompt=call.prompt,
        streams=[rollout.stream(call)],
        texts=rollout.texts,
    )
    response: Response
    if call.request.stream:
        events = [*answer.chunks(partial_output), *answer.chunks(whole)]
        lines = "".join(_event(dialect, event) for event in events)
        response = Response(lines + dialect.end, media_type="text/event-stream")
    else:
        response = JSONResponse(answer.whole(whole))
    if isinstance(answer, ResponsesAnswer) and asked.kept_turns is not None:
        rollout.keep_turns(answer.id, [*asked.kept_turns, answer.message])
    return response


def _event(dialect: Dialect, event: Mapping[str, Any]) -> str:
    named = f"event: {event['type']}\n" if dialect.are_named else ""
    return f"{named}data: {json.dumps(event, ensure_ascii=False)}\n\n"


async def _count(find: FindRollout, request: Request) -> Response:
    """The tokens of a prompt, which is no call."""
    try:
        rollout = _opened(find, request)
        content = CountRequest.model_validate_json(await _body(request))
        return JSONResponse({"input_tokens": rollout.count(content.chat())})
    except ClientDisconnect:
        return Response(status_code=400)  # which nobody reads
    except (InputError, ValidationError) as error:
        reason = field_of(error) if isinstance(error, ValidationError) else error
        return _refusal(reason, MESSAGES.error_body)


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
    before, _, path = request.url.path.rpartition("/v1")
    advice = "; ANTHROPIC_BASE_URL ends without /v1" if before.endswith("/v1") else ""
    return _refusal(InputError(f"a rollout's address has no {request.method} {path}{advice}"))


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


def _refusal(error: InputError, error_body: Callable[[InputError], dict[str, Any]] = openai_error) -> JSONResponse:
    return JSONResponse(error_body(error), status_code=400, headers=_NO_RETRY)
