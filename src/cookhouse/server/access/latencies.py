"""Latencies of requests until their answers begin, by route."""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WINDOW_SECONDS = 300.0
_MAX_ANSWERS = 1000
_OTHER = "other"
"""What fits no route."""
_GONE = 499
"""The status of an answer that nobody reads."""


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

    def add(self, route: str, answered: Answered) -> None:
        if route not in self._answers:
            self._answers[route] = deque(maxlen=_MAX_ANSWERS)
        self._answers[route].append(answered)

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

        def note(status: int) -> None:
            nonlocal is_begun
            is_begun = True
            if status != _GONE:
                now = time.monotonic()
                route = self._routes.get(scope.get("endpoint"), _OTHER)
                self._latencies.add(route, Answered(now, now - began_at, status))

        async def timed_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, timed_send)
        except Exception:  # of any kind: it is counted, and raised again
            if not is_begun:  # whoever stands around this answers
                note(500)
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
