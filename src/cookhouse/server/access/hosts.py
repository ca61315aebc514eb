"""Requests for this machine by another name: a page of a stranger's whose name leads here (DNS rebinding)."""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cookhouse.server.refusals import WrongHostError, status_of

_NAMES = ("127.0.0.1", "localhost", "[::1]")


class HostGuard:
    """Before all routes of a server that listens for programs of this machine alone: lets those requests pass that name
    it as these do. One without a Host is of no browser.
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
