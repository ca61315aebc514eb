"""The page's files. They hold nothing of anybody's, so that they need no key."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cookhouse.pages import STATIC, TYPES, environment

_HEADERS: Final = {
    # Should anything slip past the script's care, browsers neither run nor load it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_PLAYGROUND: Final[Mapping[str, Any]] = {
    "sides": ["left"],
    "prompt": "",
    "system": "",
    "defaults": {"seed": "", "temperature": 1, "max_tokens": 200},
    "most": {"characters": 1_000_000, "tokens": 1_000_000},
}


def page_routes(prefix: str) -> list[Route]:
    """A route for each file of the page, which are those that there are now: no name of a request is looked up."""
    shell = environment(base="").get_template("server.html").render(title="cookhouse server", **_PLAYGROUND)

    async def redirect(_request: Request) -> Response:
        return RedirectResponse(f"{prefix.rpartition('/')[2]}/")

    return [
        Route(prefix, redirect),
        Route(f"{prefix}/", _giving(shell.encode(), "text/html; charset=utf-8")),
        *(
            Route(f"{prefix}/{file.name}", _giving(file.read_bytes(), TYPES[file.suffix]))
            for file in sorted(STATIC.iterdir())
        ),
    ]


def _giving(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    headers: Mapping[str, str] = {**_HEADERS, "Content-Type": media_type}

    async def give(_request: Request) -> Response:
        return Response(content, headers=headers)

    return give
