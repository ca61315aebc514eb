"""Access to the page: for whoever has its token, and asks for this machine by its own name.

The token is in the address that is clicked first, and from then on in a cookie. Programs send it as a bearer.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""If anything slipped past the escaping, browsers would neither run nor load it."""
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer, besides `Cache-Control`."""


@dataclass(frozen=True)
class Access:
    """Rules by which a request is let in."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def with_token(self, path: str) -> str:
        """The path of an address to click."""
        return f"{path}{'&' if '?' in path else '?'}token={self.token}"

    def fits(self, given: str | None) -> bool:
        """True if this is the token; how long that takes to find out shows nothing of it."""
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Lets through who may see the page, answers everybody else by `refuse` with a status and the reason, and sets the
    headers of every answer.
    """

    def __init__(self, app: ASGIApp, access: Access, refuse: Callable[[Request, int, str], Response]) -> None:
        self._app = app
        self._access = access
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        address = _address(request.headers.get("host", ""))
        cookie = cookie_name(address[1]) if address else ""
        has_token = self._access.fits(request.query_params.get("token"))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
                if address and has_token:
                    value = f"{cookie}={self._access.token}; HttpOnly; SameSite=Strict; Path=/"
                    headers.append("Set-Cookie", value)
            await send(message)

        refusal = None
        if address is None or address[0] not in _HOSTS:
            refusal = (
                421,
                f"this page is served as {' or '.join(sorted(_HOSTS))} alone; open the address that was printed",
            )
        elif not (has_token or self._access.fits(request.cookies.get(cookie)) or self._is_bearer(request)):
            refusal = 403, "this address needs its token; open the whole address that was printed, token included"
        elif not _is_of_own_page(request):
            refusal = 403, f"{request.method} is taken from pages of this address alone"
        app = self._app if refusal is None else self._refuse(request, *refusal)
        await app(scope, receive, send_guarded)

    def _is_bearer(self, request: Request) -> bool:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._access.fits(token)


def cookie_name(port: int) -> str:
    """Cookies of a host are those of all its ports: each page has its own, by the port that the browser sees."""
    return f"cookhouse_{port}"


def _address(host: str) -> tuple[str, int] | None:
    """Name and port of a `Host` header; None if it is none."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").lower(), parts.port or 80
    except ValueError:
        return None


def _is_of_own_page(request: Request) -> bool:
    """True if a request that may change something comes from a page of ours or from a program: pages at other ports of
    this machine are of the same site, and the browser sends our cookie with what they ask.
    """
    if request.method in _SAFE_METHODS:
        return True
    origin = request.headers.get("origin")
    is_sent_by_own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return is_sent_by_own and (origin is None or origin.partition("://")[2] == request.headers["host"])
