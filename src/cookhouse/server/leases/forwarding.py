"""Requests that another server answers: sent on as they came, and answered as that one answers."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cookhouse.errors import InputError
from cookhouse.server.leases.members import SILENT_SECONDS, Member

FORWARDED = "x-cookhouse-forwarded-by"
"""Ids of the servers that sent a request on, the first of which a client asked."""
MAX_HOPS = 2
"""A server that stops knows of no session: whoever it asks may have to ask the one that holds it."""
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
_ASK_TIMEOUT = httpx.Timeout(connect=2.0, write=2.0, read=30.0, pool=None)
"""A server that has just joined listens already, and answers once it has looked through what others have left."""
_PART_TIMEOUT = httpx.Timeout(1.0)
"""Of a question whose answer can do without it."""
_WAY_OUT = "its session is being taken over by another server; send it again"
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)
_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0


class UnreachableError(Exception):
    """The other server does not answer: it has ended, or is about to be taken for dead; or it holds no such session."""

    def __init__(self, message: str, *, is_unsent: bool) -> None:
        """`is_unsent`: it has done nothing of what it was asked for."""
        super().__init__(message)
        self.is_unsent = is_unsent


def passed_by(request: Request) -> Sequence[str]:
    """Ids of the servers that sent a request on."""
    return [word.strip() for word in request.headers.get(FORWARDED, "").split(",") if word.strip()]


def not_here() -> JSONResponse:
    """Answer to another server that asks for a session which this one does not hold."""
    return JSONResponse({"detail": _WAY_OUT}, status_code=503, headers={"Retry-After": "1", NOT_HERE: "1"})


class Forwarding:
    """Lives on the event loop."""

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        # No proxy of the environment's; with a context of our own OpenSSL still finds the authorities in SSL_CERT_FILE.
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT, limits=_CONNECTIONS, trust_env=False, verify=ssl.create_default_context()
        )
        self._num_open = 0

    async def close(self) -> None:
        await self._client.aclose()

    async def drained(self, seconds: float) -> None:
        """Wait until what was sent on is answered, or for long enough."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._num_open and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # one of many that come and go

    async def send(self, request: Request, url: str, body: bytes | bytearray | None = None) -> Response:
        """Send a request to the server at a URL, and return its answer. `body` None: it has not been read, and is sent
        as it comes.

        Raises:
            UnreachableError: it cannot be reached, or ended meanwhile, or does not hold the session.
            InputError: no server has what is asked for.
            ClientDisconnect: the client has gone.
        """
        headers = [(name, value) for name, value in request.headers.raw if _is_end_to_end(name)]
        headers = [(name, value) for name, value in headers if name.decode("latin-1").lower() != FORWARDED]
        headers.append((FORWARDED.encode(), ", ".join([*passed_by(request), self._server_id]).encode()))
        content: bytes | AsyncIterator[bytes] | None = request.stream() if body is None else bytes(body)
        if request.method in ("GET", "HEAD"):
            content = None
        with self._opened() as opened:
            target = _target(url, request)
            sent = self._client.build_request(request.method, target, headers=headers, content=content)
            try:
                answer = await self._client.send(sent, stream=True)
            except httpx.HTTPError as error:
                is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                raise UnreachableError(f"{url}: {type(error).__name__} {error}", is_unsent=is_unsent) from error
            if NOT_HERE in answer.headers:
                await answer.aclose()
                raise UnreachableError(f"{url} does not hold its session", is_unsent=True)
            opened.keep()
            return _Forwarded(answer, self._ended)

    async def get(self, url: str, path: str, api_key: str) -> Any:
        """Answer of the server at a URL to a tenant that asks for a path of its own, as JSON.

        Raises:
            UnreachableError: it does not within a second, or has no such path.
        """
        try:
            answer = await self._client.get(f"{url}{path}", headers={"X-API-Key": api_key}, timeout=_PART_TIMEOUT)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise UnreachableError(f"{url}: {type(error).__name__} {error}".strip(), is_unsent=True) from error

    async def ask(self, url: str) -> str:
        """The id of the server at a URL.

        Raises:
            UnreachableError: it does not say: there is none, or something else.
        """
        try:
            answer = await self._client.get(f"{url}/healthz", timeout=_ASK_TIMEOUT)
            found = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise UnreachableError(f"{type(error).__name__} {error}".strip(), is_unsent=True) from error
        if not isinstance(found, dict) or not isinstance(found.get("server_id"), str):
            raise UnreachableError(f"what answers there ({answer.status_code}) says no id of a server", is_unsent=True)
        return str(found["server_id"])

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
    """Answer of another server, passed on as it comes."""

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


_SURE_SECONDS = 2 * SILENT_SECONDS
"""A server that does not answer for so long, and still writes its beats, is not one that has died."""

Ask = Callable[[str], Awaitable[str]]
"""The id of the server at a URL; raises UnreachableError."""


class Peers:
    """Checks that each of the other servers answers at its URL. Lives on the event loop.

    appears ──► asked for its id ── says it ──► work may be sent there
                      ▲  └─ something else, or nothing ──► logged once
                      └─────── a little later ──┘
    """

    def __init__(self, server_id: str, ask: Ask) -> None:
        self._server_id = server_id
        self._ask = ask
        self._asking: dict[str, asyncio.Task[None]] = {}
        """By server: of those that are there."""
        self._answering: set[str] = set()

    def look(self, living: Sequence[Member]) -> None:
        """Ask those that have come, and forget those that have gone."""
        others = {member.server_id: member for member in living if member.server_id != self._server_id}
        for server_id in self._asking.keys() - others.keys():
            self._asking.pop(server_id).cancel()
            self._answering.discard(server_id)
        for server_id in others.keys() - self._asking.keys():
            task = asyncio.create_task(self._find(others[server_id]), name=f"asking {others[server_id].url}")
            self._asking[server_id] = task

    def answers(self, member: Member) -> bool:
        return member.server_id in self._answering

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _find(self, member: Member) -> None:
        is_told = False
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + _SURE_SECONDS
        while (failure := await self._failure(member)) is not None:
            if not is_told and loop.time() >= tell_at:
                is_told = True
                _log.warning(
                    "a server joined that says it is reached at %s, and is not: %s. Nothing is sent there until it is; "
                    "see its --server-url, and what lies between",
                    member.url,
                    failure,
                )
            await asyncio.sleep(_AGAIN_SECONDS)
        self._answering.add(member.server_id)
        if is_told:
            _log.warning("the server at %s is reached now", member.url)

    async def _failure(self, member: Member) -> str | None:
        try:
            found = await self._ask(member.url)
        except UnreachableError as error:
            return str(error)
        return None if found == member.server_id else "another server answers there"
