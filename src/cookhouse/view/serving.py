"""Server of the live page on the loopback of this machine, and its application: routes, access, errors."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.pages import STATIC
from cookhouse.view.access import HEADERS, Access, Guard
from cookhouse.view.listing import Listing
from cookhouse.view.pages import page
from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground
from cookhouse.view.routes import ROUTES
from cookhouse.view.tokens.cache import RolloutCache
from cookhouse.view.tokens.words import Wordings
from cookhouse.view.watching import Watcher

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8600


def serve(
    place: Place,
    access: Access,
    port: int | None,
    on_ready: Callable[[str], None],
    *,
    labels: Path | None = None,
) -> None:
    """Serve the pages of a place until SIGINT or SIGTERM. `on_ready` is given the address, token included, by path.

    `port` 0 takes a free one; None takes the usual one, or a free one if that is in use. `labels` is the file that
    labels of the playground go to; default: one in the place.

    Raises:
        InputError: the port cannot be used.
    """
    with bind(port) as listener:
        server = make_server(place, access, Playground(place, labels=labels))
        on_ready(f"http://{HOST}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


class Server(uvicorn.Server):
    """Ends the streams of events when it is to stop, which it would wait for."""

    def __init__(self, config: uvicorn.Config, watcher: Watcher) -> None:
        super().__init__(config)
        self._watcher = watcher

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watcher.end()
        await super().shutdown(sockets)


def make_server(place: Place, access: Access, playground: Playground | None = None) -> Server:
    """A server that has no socket yet."""
    app = create_app(place, access, playground)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http="h11",
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    return Server(config, app.state.watcher)


def bind(port: int | None) -> socket.socket:
    if port is None:
        try:
            return bind(DEFAULT_PORT)
        except InputError:
            return bind(0)
    if not 0 <= port < 2**16:
        raise InputError(f"port {port} does not exist; allowed are 0 (a free one) to {2**16 - 1}")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise InputError(f"port {port} {why}; pass another, or 0 for a free one") from error
    return listener


_MAX_READERS: Final = 8
"""Threads that read files for pages at once."""
_TITLES: Final = {
    403: "Not open to you",
    404: "Not found",
    405: "Not allowed",
    421: "Another address",
    500: "It failed",
}


def create_app(place: Place, access: Access, playground: Playground | None = None) -> Starlette:
    """The pages of a place, for whoever has access."""
    app = Starlette(
        routes=[*ROUTES, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(Guard, access=access, refuse=_refusal)],
        exception_handlers={HTTPException: _refuse, InputError: _refuse, Exception: _admit_fault},
        lifespan=_lifespan,
    )
    app.state.place = place
    app.state.listing = Listing(place)
    app.state.watcher = Watcher()
    app.state.playground = playground or Playground(place)
    app.state.rollouts = RolloutCache()
    app.state.wordings = Wordings()
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    # Endpoints that are plain functions run in threads of this limiter.
    anyio.to_thread.current_default_thread_limiter().total_tokens = _MAX_READERS
    # The first look at hundreds of runs takes longest: take it before anybody asks.
    first_look = asyncio.get_running_loop().run_in_executor(None, app.state.listing.look)
    yield
    await asyncio.wait([first_look])
    await app.state.playground.close()


def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, InputError):
        return _refusal(request, 404 if isinstance(error, UnknownNameError) else 400, str(error))
    assert isinstance(error, HTTPException)
    return _refusal(request, error.status_code, _reason(request, error))


def _reason(request: Request, error: HTTPException) -> str:
    if error.status_code in (404, 405):
        return f"there is no {request.method} {request.url.path} here"
    return error.detail


def _admit_fault(request: Request, _error: Exception) -> Response:
    # Starlette raises it again after this answer, so that the server logs the traceback. The guard is left by then.
    answer = _refusal(request, 500, "the page could not be made; where it is served, the terminal shows why")
    answer.headers.update({**HEADERS, "Cache-Control": "no-store"})
    return answer


def _refusal(request: Request, status_code: int, reason: str) -> Response:
    if request.url.path.startswith(("/api/", "/events/")):
        return JSONResponse({"detail": reason}, status_code=status_code)
    title = _TITLES.get(status_code, "Not possible")
    return page("error.html", status_code=status_code, title=title, reason=reason)
