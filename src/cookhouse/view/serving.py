"""A server on the loopback of this machine, for as long as the process lives."""

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from cookhouse.errors import InputError
from cookhouse.view.access import Access
from cookhouse.view.app import create_app
from cookhouse.view.place import Place
from cookhouse.view.playground.playground import Playground
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
