"""Requests that another server answers: sent on as they came, and answered as that one answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cookhouse.errors import InputError

FORWARDED = "x-cookhouse-forwarded-by"
"""The id of the server that sent a request on: no other does so again."""
NOT_HERE = "x-cookhouse-not-here"
"""On an answer: the session is held by yet another server."""
_OF_ONE_HOP = frozenset(
    [
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_TIMEOUT = httpx.Timeout(connect=2.0, write=30.0, read=90.0, pool=None)
"""Longer than the longest poll, and than a request waits for a store that is locked."""
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)


class UnreachableError(Exception):
    """The other server does not answer: it has ended, or is about to be taken for dead."""


class Forwarding:
    """Lives on the event loop."""

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, limits=_CONNECTIONS, trust_env=False)
        self._num_open = 0

    async def close(self) -> None:
        await self._client.aclose()

    async def drained(self, seconds: float) -> None:
        """Wait until what was sent on is answered, or for long enough."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._num_open and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # one of many that come and go

    async def send(self, request: Request, url: str, body: bytes | bytearray | None = None) -> Response:
        """What the server at a URL answers. `body` None: it has not been read, and is sent as it comes.

        Raises:
            UnreachableError: it cannot be reached, or ended meanwhile. Of a request whose body has been read, nothing
                is lost: it can be sent again.
            InputError: no server has what is asked for.
            ClientDisconnect: the client has gone.
        """
        headers = [(name, value) for name, value in request.headers.raw if _is_end_to_end(name)]
        headers.append((FORWARDED.encode(), self._server_id.encode()))
        content: bytes | AsyncIterator[bytes] | None = request.stream() if body is None else bytes(body)
        if request.method in ("GET", "HEAD"):
            content = None
        with self._opened() as opened:
            target = _target(url, request)
            sent = self._client.build_request(request.method, target, headers=headers, content=content)
            try:
                answer = await self._client.send(sent, stream=True)
            except httpx.HTTPError as error:
                raise UnreachableError(f"{url}: {type(error).__name__} {error}") from error
            if NOT_HERE in answer.headers:
                await answer.aclose()
                raise UnreachableError(f"{url} does not hold its session")
            opened.keep()
            return _Forwarded(answer, self._ended)

    def _ended(self) -> None:
        self._num_open -= 1

    @contextmanager
    def _opened(self) -> Iterator["_Opened"]:
        opened = _Opened()
        self._num_open += 1
        try:
            yield opened
        finally:
            if not opened.is_kept:
                self._ended()


class _Opened:
    is_kept = False

    def keep(self) -> None:
        """Its answer is on its way, whose end counts."""
        self.is_kept = True


class _Forwarded(StreamingResponse):
    """What another server answers, as it comes."""

    def __init__(self, answer: httpx.Response, on_end: Callable[[], None]) -> None:
        super().__init__(answer.aiter_raw(), status_code=answer.status_code)
        self.raw_headers = [(name.lower(), value) for name, value in answer.headers.raw if _is_end_to_end(name)]
        self._answer = answer
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._answer.aclose()


def _is_end_to_end(name: bytes) -> bool:
    return name.decode("latin-1").lower() not in _OF_ONE_HOP


def _target(url: str, request: Request) -> httpx.URL:
    try:
        return httpx.URL(url).copy_with(raw_path=_raw_path(request))
    except httpx.InvalidURL as error:  # no path, such as `*`, or a very long one
        raise InputError(f"the address of the request cannot be read: {error}") from error


def _raw_path(request: Request) -> bytes:
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query: bytes = request.scope.get("query_string", b"")
    return path + b"?" + query if query else path
