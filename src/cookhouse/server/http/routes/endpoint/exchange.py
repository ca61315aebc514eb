"""Exchanges of this endpoint's routes: the tenant, the body, and answers that end when nobody waits."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from cookhouse.dialects import anthropic, openai
from cookhouse.engine.contract import SampleOutput
from cookhouse.errors import CookhouseError
from cookhouse.server.access.bodies import read_body
from cookhouse.server.http.routes.exchange import ServiceOf, read_in_turn
from cookhouse.server.refusals import UnauthorizedError, message_of, status_of
from cookhouse.server.requests.completions.sampling import Sampling
from cookhouse.server.service import Service
from cookhouse.server.wire import ValueCounter

_T = TypeVar("_T")
Content = TypeVar("Content", bound=BaseModel)
Chunks = Iterable[dict[str, Any]]


class ClientGoneError(Exception):
    """The client has closed its connection."""


@dataclass(frozen=True, slots=True)
class StreamForm:
    """Server-sent events of a dialect."""

    are_named: bool
    """Whether the type of an event stands before its data, too."""
    failed: Callable[[str, int], dict[str, Any]]
    """The last event of a stream that fails, of a message and an HTTP status."""
    end: bytes = b""
    """What follows the last event of one that does not."""
    ping: bytes = b": keepalive\n\n"
    """Sent to keep an idle connection open: by default a comment, which readers of events skip."""

    def event(self, content: dict[str, Any]) -> bytes:
        named = b"event: " + str(content["type"]).encode() + b"\n" if self.are_named else b""
        return named + b"data: " + json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


OPENAI = StreamForm(are_named=False, failed=openai.error_body, end=b"data: [DONE]\n\n")
ANTHROPIC = StreamForm(are_named=True, failed=anthropic.error_body, ping=b'event: ping\ndata: {"type": "ping"}\n\n')
PING_SECONDS = 15.0
"""Seconds without an event until a ping is sent, since proxies close idle connections. A stream begins by then."""


async def _owner(request: Request, service: ServiceOf) -> str:
    """The tenant of the key, which OpenAI's clients send in one header, and Anthropic's in another."""
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = [request.headers.get("x-api-key", ""), bearer if kind.lower() == "bearer" else ""]
    key = next((key for one in given if service.keys.has(key := one.strip())), None)
    try:
        return service.keys.owner_of(key)
    except UnauthorizedError as error:
        raise UnauthorizedError(
            "the request has no key of this server's (Authorization: Bearer tml-…, or x-api-key: tml-…); set "
            "OPENAI_API_KEY or ANTHROPIC_API_KEY to one"
        ) from error


Owner = Annotated[str, Depends(_owner)]


async def content_of(request: Request, service: Service, owner: str, kind: type[Content]) -> Content:
    """The JSON body as a request.

    Raises:
        TooLargeError: it is over a limit.
        BusyError: the tenant has the server hold too much.
        pydantic.ValidationError: it is not one.
    """
    most = service.settings.max_answer_body_bytes
    with service.sequencer.held.lease(owner) as lease:
        body = await read_body(request, lease, max_bytes=most, max_decoded_bytes=most)
        return await read_in_turn(
            service, owner, body, lambda: kind.model_validate_json(body.read(ValueCounter().feed))
        )


async def unless_gone(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """The outcome of work, which ends when the client goes.

    Raises:
        ClientGoneError: it has gone.
    """
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def whole(request: Request, service: Service, sampling: Sampling) -> list[SampleOutput]:
    """Outputs of the engine for each of the requests of an answer, in order."""

    async def gather() -> list[SampleOutput]:
        return [output for _, output in sorted([one async for one in sampling.outputs()], key=lambda one: one[0])]

    try:
        return await unless_gone(request, gather())
    finally:
        service.requests.answers.end(sampling)


async def stream(
    request: Request,
    service: Service,
    sampling: Sampling,
    chunks: Callable[[int, SampleOutput], Chunks],
    form: StreamForm,
    end: Callable[[], Chunks] = tuple,
) -> StreamingResponse:
    """Server-sent events, as the engine samples. A request that fails before its first event, within `PING_SECONDS`,
    is answered by its status; a later failure is the last event.
    """

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            async for position, output in sampling.outputs():
                if made := b"".join(map(form.event, chunks(position, output))):
                    yield made
            yield b"".join(map(form.event, end())) + form.end
        except CookhouseError as error:
            if not is_begun:
                raise
            yield form.event(form.failed(message_of(error), status_of(error)))
        except Exception as error:
            if not is_begun:
                raise
            yield form.event(form.failed(message_of(error), 500))
            raise
        finally:
            service.requests.answers.end(sampling)

    is_begun = False
    making = events()
    first = asyncio.ensure_future(anext(making))
    try:
        await unless_gone(request, _settled(first))
        if first.done():
            first.result()
        is_begun = True
    finally:
        if not is_begun:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_kept_open(making, first, form.ping), media_type="text/event-stream", headers=headers)


async def _settled(coming: asyncio.Future[bytes]) -> bool:
    """True if it has come within `PING_SECONDS`."""
    return bool((await asyncio.wait([coming], timeout=PING_SECONDS))[0])


async def _kept_open(
    making: AsyncGenerator[bytes, None], first: asyncio.Future[bytes], ping: bytes
) -> AsyncIterator[bytes]:
    """The events, with a ping after each `PING_SECONDS` without one."""
    coming = first
    try:
        while True:
            while not await _settled(coming):
                yield ping
            try:
                made = coming.result()
            except StopAsyncIteration:
                return
            yield made
            coming = asyncio.ensure_future(anext(making))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await making.aclose()
