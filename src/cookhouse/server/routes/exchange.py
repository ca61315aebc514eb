"""What every route needs: the service, whose request it is, and the body in its type."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from cookhouse.server.access.bodies import read_body
from cookhouse.server.service import Service

_INLINE_BYTES = 256 * 2**10

Content = TypeVar("Content", bound=BaseModel)


# Coroutines, though nothing waits in them: FastAPI runs plain functions in threads.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _owner(request: Request) -> str:
    return (await _service(request)).keys.owner_of(request.headers.get("x-api-key"))


Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=2**31)]
ServiceOf = Annotated[Service, Depends(_service)]
Owner = Annotated[str, Depends(_owner)]


async def body_of(request: Request) -> bytes:
    """The body within the size limits, decompressed.

    Raises:
        TooLargeError: it is over a limit.
    """
    settings = (await _service(request)).settings
    return await read_body(request, max_bytes=settings.max_body_bytes, max_decoded_bytes=settings.max_decoded_bytes)


async def content_of(request: Request, kind: type[Content]) -> Content:
    """The JSON body as one of the SDK's request types; large ones are parsed off the event loop.

    Raises:
        pydantic.ValidationError: it is not one.
    """
    body = await body_of(request)
    if len(body) > _INLINE_BYTES:
        return await asyncio.to_thread(kind.model_validate_json, body)
    return kind.model_validate_json(body)


async def forget(_request: Request, _error: Exception) -> Response:
    """The answer to a client that has gone, in the middle of its request or while it waited: nobody reads it."""
    return Response(status_code=499)


def future_answer(request_id: str, model_id: str) -> JSONResponse:
    return JSONResponse({"request_id": request_id, "model_id": model_id})


def texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The SDK reads metadata as texts, whatever was written."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
