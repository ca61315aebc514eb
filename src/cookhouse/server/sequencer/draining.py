"""Draining of a server, in its last seconds: what it has accepted is answered, and it accepts nothing more.

    begin ──► changes of state wait at the gate ──► `done`: all is answered and fetched, or time is up ──► end ──► 503
              results, heartbeats and reads go on

A request is held rather than refused at once, since the SDK waits longer after each refusal: held until the end, it is
back soonest at the next server. Its body has not been read, and is sent again. Where several servers share the work, it
goes on to another at once, or back to the one that sent it. What is for this server's workers is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cookhouse.server.sequencer.futures import Futures

_LOOK_SECONDS = 0.05
_FETCH_SECONDS = 5.0
"""The SDK waits for each result, and has it at once; who has not fetched one in this time is gone."""
_READING = {"GET", "HEAD", "OPTIONS"}
_GOES_ON = {
    "/api/v1/cancel_future",
    "/api/v1/checkpoints/search",
    "/api/v1/client/config",
    "/api/v1/client/dynamic_config",
    "/api/v1/get_info",
    "/api/v1/retrieve_future",
    "/api/v1/retrieve_futures",
    "/api/v1/session_heartbeat",
    "/api/v1/sessions/search",
    "/api/v1/telemetry",
    "/api/v1/weights_info",
}
_FINISH = "/finish"
_WORKERS = "/api/v1/workers"
"""Of this server alone: others have workers of their own, by the same names."""


SendOn = Callable[[Request], Awaitable[Response | None]]


class Draining:
    """State of a server's draining, and the requests that it waits for. Lives on the event loop."""

    def __init__(self, futures: Futures, *, hold_seconds: float) -> None:
        """`hold_seconds`: how long a request is held at most."""
        self._futures = futures
        self._hold_seconds = hold_seconds
        self._num_entered = 0
        self._over = asyncio.Event()
        self.is_begun = False
        self.send_on: SendOn | None = None
        """Where other servers share the work: has one of them answer; None of it: there is none that could."""

    @property
    def num_entered(self) -> int:
        """Requests that change state, and are being answered."""
        return self._num_entered

    def begin(self) -> None:
        self.is_begun = True

    async def done(self, seconds: float) -> bool:
        """Wait until all that was accepted has a result, and a little for the results to be fetched; False: some has
        none after so long.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        are_finished = await _until(lambda: not self._num_entered and self._futures.are_finished, deadline)
        if are_finished:
            fetching_until = asyncio.get_running_loop().time() + _FETCH_SECONDS
            await _until(lambda: self._futures.are_fetched, min(deadline, fetching_until))
        return are_finished

    def end(self) -> None:
        """Refuse what is held."""
        self.begin()
        self._over.set()

    def gate(self, app: ASGIApp) -> ASGIApp:
        """Middleware in which requests that change state wait while the server drains."""

        async def enter(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not changes_state(scope["method"], scope["path"]):
                await app(scope, receive, send)
            elif self.is_begun:
                await (await self._answer(scope, receive))(scope, receive, send)
            else:
                self._num_entered += 1
                try:
                    await app(scope, receive, send)
                finally:
                    self._num_entered -= 1

        return enter

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """The answer to a request that is not let in: another server's, or, once it has waited, a refusal."""
        if is_of_workers(scope["path"]):
            return JSONResponse({"detail": "the server is stopping, and its workers with it"}, status_code=503)
        answer = None if self.send_on is None else await self.send_on(Request(scope, receive))
        if answer is not None:
            return answer
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), self._hold_seconds)
        detail = "the server is stopping and accepts nothing more; send it again to the next one"
        headers = {"Retry-After": "1", "Connection": "close"}
        return JSONResponse({"detail": detail}, status_code=503, headers=headers)


async def _until(is_so: Callable[[], bool], deadline: float) -> bool:
    loop = asyncio.get_running_loop()
    while not is_so():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def changes_state(method: str, path: str) -> bool:
    return method not in _READING and path not in _GOES_ON and not path.endswith(_FINISH)


def is_of_workers(path: str) -> bool:
    return path == _WORKERS or path.startswith(f"{_WORKERS}/")
