"""Middleware around all routes: guards, and the time until each answer begins.

Guards refuse requests whose length, or whose host, can be read in two ways. What this server takes for one request, a
proxy before it may take for two. A stranger's page may ask for this machine by another name, which leads here (DNS
rebinding).
"""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cookhouse.server.refusals import WrongHostError, status_of

WINDOW_SECONDS = 300.0
_MAX_ANSWERS = 1000
_OTHER = "other"
"""What fits no route."""
_GONE = 499
"""The status of an answer that nobody reads."""
_LENGTHS = {b"content-length", b"transfer-encoding"}
_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Answered:
    at: float
    """On the clock of `time.monotonic`."""
    seconds: float
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTimes:
    """Of a route's answers in the last `WINDOW_SECONDS`, the newest 1,000 at most."""

    route: str
    number: int
    median_seconds: float
    p95_seconds: float
    num_refused: int
    """Answered 4xx."""
    num_failed: int
    """Answered 5xx."""


class Latencies:
    """Filled on the event loop."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[Answered]] = {}

    def add(self, route: str, began_at: float, status: int) -> None:
        """Add an answer that begins now, to a request that came at `began_at` by `time.monotonic`."""
        if status == _GONE:
            return
        now = time.monotonic()
        if route not in self._answers:
            self._answers[route] = deque(maxlen=_MAX_ANSWERS)
        self._answers[route].append(Answered(now, now - began_at, status))

    def times(self) -> list[RouteTimes]:
        """By route, the most asked first. From any thread."""
        since = time.monotonic() - WINDOW_SECONDS
        recent = {route: [one for one in list(answers) if one.at >= since] for route, answers in self._taken().items()}
        found = [_times(route, answers) for route, answers in recent.items() if answers]
        return sorted(found, key=lambda one: (-one.number, one.route))

    def _taken(self) -> Mapping[str, deque[Answered]]:
        return dict(self._answers)


class Timed:
    """Tells how long each request takes. `routes` has the name of a route by what Starlette calls its endpoint: paths
    would be without a bound, and hold names.
    """

    def __init__(self, app: ASGIApp, latencies: Latencies, routes: Mapping[Hashable, str]) -> None:
        self._app = app
        self._latencies = latencies
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at, is_begun = time.monotonic(), False

        async def timed_send(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                self._latencies.add(self._routes.get(scope.get("endpoint"), _OTHER), began_at, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, timed_send)
        except Exception:  # of any kind: it is counted, and raised again
            if not is_begun:  # whoever stands around this answers
                self._latencies.add(self._routes.get(scope.get("endpoint"), _OTHER), began_at, 500)
            raise


def endpoint_names(prefix: str, routes: Iterable[BaseRoute]) -> dict[Hashable, str]:
    """Methods and path of each route, by its endpoint."""
    return {
        route.endpoint: f"{'/'.join(sorted((route.methods or set()) - {'HEAD'}))} {prefix}{route.path}"
        for route in routes
        if isinstance(route, Route)
    }


def _times(route: str, answers: list[Answered]) -> RouteTimes:
    seconds = sorted(one.seconds for one in answers)
    return RouteTimes(
        route=route,
        number=len(answers),
        median_seconds=_quantile(seconds, 0.5),
        p95_seconds=_quantile(seconds, 0.95),
        num_refused=sum(400 <= one.status < 500 for one in answers),
        num_failed=sum(one.status >= 500 for one in answers),
    )


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


class Guard:
    """Refuses a request with both Content-Length and Transfer-Encoding (RFC 9112, 6.1), and one for another host; the
    connection is closed.
    """

    def __init__(self, app: ASGIApp, *, is_loopback: bool) -> None:
        """`is_loopback`: only programs of this machine can reach the server, and name it as such. A request without a
        Host is of no browser, and passes.
        """
        self._app = app
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host") if self._is_loopback else None
            name = host if host is None or host.endswith("]") else host.rpartition(":")[0] or host
            if host is not None and name is not None and name.lower() not in _NAMES:
                answer = _refusal(host)
            elif {header for header, _ in scope["headers"]} >= _LENGTHS:
                detail = "the request has Content-Length and Transfer-Encoding; send one of them"
                answer = JSONResponse({"detail": detail}, status_code=400, headers={"Connection": "close"})
        await answer(scope, receive, send)


def _refusal(host: str) -> JSONResponse:
    error = WrongHostError(
        f"this server listens on loopback, and is asked for {', '.join(_NAMES[:-1])} or {_NAMES[-1]}, not for "
        f"{host[:200]!r}; a proxy before it has to send one of these as Host"
    )
    return JSONResponse({"detail": str(error)}, status_code=status_of(error), headers={"Connection": "close"})
