"""The web server: accepts connections itself, so that what asks for nothing takes no more than its share."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cookhouse.server.access.connections import Connections

_KEEP_ALIVE_SECONDS = 120
_AT_ONCE = 64
"""Connections accepted in one turn of the event loop."""
_FULL_SECONDS = 0.2
_SEEN_TICKS = 4
"""Turns of the event loop from a connection's beginning until it has been read from."""
_LOG_SECONDS = 60.0


def make_server(app: Any, connections: Connections) -> "GuardedServer":
    """One that handles no signals, and has no socket yet."""
    logging.getLogger("uvicorn.error").addFilter(_SPARSE)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=True,  # of a proxy on this machine: links in answers have the scheme that it was asked by
        forwarded_allow_ips="127.0.0.1,::1",
        server_header=False,
        http=_GuardedProtocol,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    return GuardedServer(config, connections)


class GuardedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: its own raise the signal again, which would skip our cleaning up."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or []:
            listener.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listener), name="accepting"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop, number = asyncio.get_running_loop(), 0
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except ConnectionError:
                continue
            except OSError as error:  # no descriptor, or no memory: it stays in the queue of the system
                self._connections.note_full(error)
                await asyncio.sleep(_FULL_SECONDS)
                continue
            if await self._connections.has_room(address[0]):
                self._begin(accepted, address[0])
            else:
                accepted.close()
            number += 1
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        protocol = _GuardedProtocol(
            self.config, self.server_state, self.lifespan.state, loop, connections=self._connections
        )
        self._connections.add(protocol, host)
        opening = loop.create_task(_open(protocol, accepted))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)


async def _open(protocol: "_GuardedProtocol", accepted: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
    except OSError:  # it has gone already
        accepted.close()
        protocol.leave()


class _GuardedProtocol(H11Protocol):
    """HTTP by a parser that bounds what comes before a body, not by whichever another package brought."""

    def __init__(self, *arguments: Any, connections: Connections) -> None:
        super().__init__(*arguments)
        self._guard = connections
        self._began_at = time.monotonic()
        self._is_known = False
        self._is_seen = False
        self._is_gone = False
        self._late: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self._is_seen and (self.cycle is None or self.cycle.response_complete)

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._began_at

    def abort(self) -> None:
        self.leave()
        if self.transport is not None:
            self.transport.abort()

    def leave(self) -> None:
        """Count no longer."""
        self._set_deadline(is_waiting=False)
        if not self._is_gone:
            self._is_gone = True
            self._guard.remove(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(is_waiting=True)
        self._see(_SEEN_TICKS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_waiting = self.conn.their_state is h11.IDLE
        if is_waiting != (self._late is not None):
            self._set_deadline(is_waiting=is_waiting)
        if not self._is_known and self.headers is not None and self._has_key():
            self._is_known = True
            self._guard.know(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def _see(self, ticks: int) -> None:
        if ticks:
            self.loop.call_soon(self._see, ticks - 1)
        else:
            self._is_seen = True

    def _has_key(self) -> bool:
        for name, value in self.headers:
            text = value.decode("latin-1").strip()
            kind, _, rest = text.partition(" ")
            if name == b"authorization" and kind.lower() == "bearer":
                text = rest.strip()
            if name in (b"x-api-key", b"authorization") and self._guard.is_key(text):
                return True
        return False

    def _set_deadline(self, *, is_waiting: bool) -> None:
        """Of a request's head, from its first byte on, or from the connection's beginning."""
        if is_waiting and self._late is None and not self._is_gone:
            self._late = self.loop.call_later(self._guard.limits.head_seconds, self._guard.close_late, self)
        elif not is_waiting and self._late is not None:
            self._late.cancel()
            self._late = None


class _Sparse(logging.Filter):
    """Lets a warning that a stranger can cause through once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._next_at: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.levelno != logging.WARNING or now >= self._next_at.get(record.msg, now):
            self._next_at[record.msg] = now + _LOG_SECONDS
            return True
        return False


_SPARSE = _Sparse()
"""One for all servers of a process, whose logger is one."""
