"""The page's files. They hold nothing of anybody's, so that they need no key."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

_FOLDER = Path(__file__).parent / "static"
_TYPES: Final = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
_HEADERS: Final = {
    # Should anything slip past the script's care, browsers neither run nor load it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_SHELL = "index.html"


def page_routes(prefix: str) -> list[Route]:
    """A route for each file of the page, which are those that there are now: no name of a request is looked up."""
    files = {file.name: file.read_bytes() for file in sorted(_FOLDER.iterdir()) if file.suffix in _TYPES}
    paths = {f"{prefix}/{'' if name == _SHELL else name}": name for name in files}

    async def redirect(_request: Request) -> Response:
        return RedirectResponse(f"{prefix.rpartition('/')[2]}/")

    routes = [Route(prefix, redirect)]
    for path, name in paths.items():
        routes.append(Route(path, _giving(files[name], _TYPES[Path(name).suffix])))
    return routes


def _giving(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    headers: Mapping[str, str] = {**_HEADERS, "Content-Type": media_type}

    async def give(_request: Request) -> Response:
        return Response(content, headers=headers)

    return give
