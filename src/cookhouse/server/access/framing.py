"""Requests whose length can be read in two ways: what this server takes for one, a proxy before it may take for two."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LENGTHS = {b"content-length", b"transfer-encoding"}


class OneLength:
    """Refuses Content-Length beside Transfer-Encoding, and closes the connection (RFC 9112, 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _LENGTHS:
            detail = "the request has Content-Length and Transfer-Encoding; send one of them"
            answer = JSONResponse({"detail": detail}, status_code=400, headers={"Connection": "close"})
        await answer(scope, receive, send)
