"""Guards before all routes: they refuse requests whose length, or whose host, can be read in two ways.

What this server takes for one request, a proxy before it may take for two. A page of a stranger's may ask for this
machine by another name, which leads here (DNS rebinding).
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cookhouse.server.refusals import WrongHostError, status_of

_LENGTHS = {b"content-length", b"transfer-encoding"}
_NAMES = ("127.0.0.1", "localhost", "[::1]")


class OneLength:
    """Refuses Content-Length with Transfer-Encoding, and closes the connection (RFC 9112, 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _LENGTHS:
            detail = "the request has Content-Length and Transfer-Encoding; send one of them"
            answer = JSONResponse({"detail": detail}, status_code=400, headers={"Connection": "close"})
        await answer(scope, receive, send)


class HostGuard:
    """Of a server that listens for programs of this machine alone: lets those requests pass that name it as these do.
    One without a Host is of no browser.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host") if scope["type"] == "http" else None
        if host is None or _name_of(host) in _NAMES:
            await self._app(scope, receive, send)
            return
        error = WrongHostError(
            f"this server listens on loopback, and is asked for {', '.join(_NAMES[:-1])} or {_NAMES[-1]}, not for "
            f"{host[:200]!r}; a proxy before it has to send one of these as Host"
        )
        answer = JSONResponse({"detail": str(error)}, status_code=status_of(error), headers={"Connection": "close"})
        await answer(scope, receive, send)


def _name_of(host: str) -> str:
    return (host if host.endswith("]") else host.rpartition(":")[0] or host).lower()
