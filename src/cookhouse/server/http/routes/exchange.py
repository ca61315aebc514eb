"""Exchanges of every route: the service, the tenant, the body in its type, and the server that holds its session."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.responses import Response
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.server.access.bodies import Body, read_body
from cookhouse.server.leases.placing import ElsewhereError
from cookhouse.server.refusals import ForbiddenError
from cookhouse.server.sequencer.draining import changes_state
from cookhouse.server.service import Service
from cookhouse.server.wire import (
    JsonTraining,
    ValueCounter,
    begun_training,
    json_counter,
    read_json_training,
    training_counter,
)

_INLINE_BYTES = 16 * 2**10
_BEGINNING_BYTES = 1024
"""Of a training request: its model's id and its number stand there."""

Content = TypeVar("Content", bound=BaseModel)
_T = TypeVar("_T")


# Coroutines, though nothing waits in them: FastAPI runs plain functions in threads.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _owner(request: Request) -> str:
    return (await _service(request)).keys.owner_of(request.headers.get("x-api-key"))


async def _operator(request: Request) -> str:
    service, owner = await _service(request), await _owner(request)
    if owner != service.keys.operator:
        raise ForbiddenError(
            "this is for the server's first key alone: the first of --api-key or COOKHOUSE_API_KEYS, or its only one"
        )
    return owner


Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=2**31)]
ServiceOf = Annotated[Service, Depends(_service)]
Owner = Annotated[str, Depends(_owner)]
Operator = Annotated[str, Depends(_operator)]


@asynccontextmanager
async def training_body(
    request: Request, service: Service, owner: str
) -> AsyncIterator[tuple[bytes | bytearray, Body]]:
    """The body of a training request, decompressed and counted, and as it came; it counts as the tenant's until the end
    of the block.

    Raises:
        TooLargeError: it is over a limit.
        BusyError: the tenant has the server hold too much.
        ElsewhereError: it has been answered by another server.
    """
    most = service.settings
    with service.sequencer.held.lease(owner) as lease:
        with service.sessions.receiving(lease):
            body = await read_body(
                request, lease, max_bytes=most.max_body_bytes, max_decoded_bytes=most.max_decoded_bytes
            )
        if service.placing is not None:  # what goes on to another server is decoded there
            begun = begun_training(body.beginning(_BEGINNING_BYTES))
            if begun.model_id:
                await check_place(request, service, begun, body)
        counter = training_counter(body.num_bytes)
        if counter is None and not body.encoding:
            yield body.data, body
        else:
            yield await read_in_turn(service, owner, body, lambda: body.read(counter)), body


@asynccontextmanager
async def json_training_body(
    request: Request, service: Service, owner: str, *, forward_only: bool
) -> AsyncIterator[tuple[JsonTraining, Body]]:
    """The body of a training request in JSON, read, and as it came; as of `training_body`.

    Raises:
        InputError, pydantic.ValidationError: as `read_json_training`.
    """
    most = service.settings
    with service.sequencer.held.lease(owner) as lease:
        with service.sessions.receiving(lease):
            body = await read_body(
                request, lease, max_bytes=most.max_body_bytes, max_decoded_bytes=most.max_decoded_bytes
            )

        def read() -> JsonTraining:
            count = json_counter(most.max_decoded_bytes).feed
            return read_json_training(body.read(count), forward_only=forward_only)

        yield await read_in_turn(service, owner, body, read), body


Answer = Callable[[Request, Service, str], Awaitable[Response]]


class HotRoutes:
    """Posted to at every step: matched first, without FastAPI's dependencies, which take as long as we do."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def post(self, path: str) -> Callable[[Answer], Answer]:
        """A route of a function of the request, the service and the tenant."""

        def add(answer: Answer) -> Answer:
            async def endpoint(request: Request) -> Response:
                service: Service = request.app.state.service
                return await answer(request, service, service.keys.owner_of(request.headers.get("x-api-key")))

            self.routes.append(Route(path, endpoint, methods=["POST"]))
            return answer

        return add


async def read_content(request: Request, service: Service, owner: str, kind: type[Content]) -> tuple[Content, Body]:
    """The JSON body as one of the SDK's request types, and as it came.

    Raises:
        TooLargeError: it is over a limit.
        BusyError: the tenant has the server hold too much.
        ElsewhereError: it has been answered by another server.
        InputError: it is no JSON.
        pydantic.ValidationError: it is not of that type.
    """
    most = min(service.settings.max_json_bytes, service.settings.max_body_bytes)
    with service.sequencer.held.lease(owner) as lease:
        with service.sessions.receiving(lease):
            body = await read_body(request, lease, max_bytes=most, max_decoded_bytes=most)
        try:
            content = await read_in_turn(
                service,
                owner,
                body,
                lambda: kind.model_validate(from_json(body.read(ValueCounter().feed), allow_inf_nan=False)),
            )
        except (InputError, ValidationError):
            raise
        except ValueError as error:
            raise InputError(f"the body is not valid JSON: {error}") from error
        await check_place(request, service, content, body)
        return content, body


async def check_place(request: Request, service: Service, content: object, body: Body | None = None) -> None:
    """Have a request answered by the server that holds its session, if that is another. `content` names the session, or
    something of it; `body` is as it came.

    Raises:
        ElsewhereError: it has been.
    """
    if service.placing is not None:
        request.state.is_of_session = True
        data = None if body is None else body.data
        waits = changes_state(request.method, request.url.path)
        await service.placing.check(request, content, data, waits=waits)


async def parts_elsewhere(request: Request, service: Service, path: str) -> Mapping[str, Any]:
    """Answers of the other servers that share the sessions to the same tenant, for a path below `/own`, by server id:
    parts of what only a server's memory has.
    """
    if service.placing is None:
        return {}
    return await service.placing.parts(f"/api/v1/own{path}", request.headers["x-api-key"])


async def elsewhere(_request: Request, error: Exception) -> Response:
    """The answer of another server."""
    assert isinstance(error, ElsewhereError)
    return error.answer


async def read_in_turn(service: Service, owner: str, body: Body, read: Callable[[], _T]) -> _T:
    """Result of `read` for a body: off the event loop if it is large, with the tenants in rotation."""
    if body.num_bytes <= _INLINE_BYTES:
        return read()
    async with service.requests.reading.hold(owner):
        return await asyncio.to_thread(read)


async def forget(_request: Request, _error: Exception) -> Response:
    """The answer to a client that has gone, in the middle of its request or while it waited: nobody reads it."""
    return Response(status_code=499)


def texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The SDK reads metadata as texts, whatever was written."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
