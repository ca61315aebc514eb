"""Ids of requests, which every answer says in the header that its client reads."""

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MESSAGES = ("/messages", "/messages/count_tokens")
_KEY = "cookhouse.request_id"


def is_for_anthropic(scope: Scope) -> bool:
    """True if Anthropic's client asks, which reads errors and ids in forms of its own."""
    return "anthropic-version" in Headers(scope=scope) or scope["path"].endswith(_MESSAGES)


def request_id(scope: Scope) -> str:
    """The id of a request, the same however often it is asked for."""
    made: str = scope.setdefault(_KEY, f"req_{secrets.token_hex(12)}")
    return made


def id_header(scope: Scope) -> dict[str, str]:
    """The header that says it."""
    return {"request-id" if is_for_anthropic(scope) else "x-request-id": request_id(scope)}


class RequestIds:
    """Says the id in every answer but those to faults, which are made outside of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def identified_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(id_header(scope))
            await send(message)

        await self._app(scope, receive, identified_send if scope["type"] == "http" else send)
