"""A server process, from the socket it binds to the thread it stops."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import resource
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future as ConcurrentFuture
from functools import partial
from typing import TYPE_CHECKING, Any

from cookhouse.errors import InputError
from cookhouse.server.access.auth import check_keys
from cookhouse.server.settings import ServiceOptions
from cookhouse.server.startup.libraries import loading
from cookhouse.server.storage.store.state_dir import lock_state_dir

if TYPE_CHECKING:
    import uvicorn

    from cookhouse.engine.contract import Worker, WorkerOptions
    from cookhouse.server.leases.leases import Leases
    from cookhouse.server.leases.sharing import Sharing
    from cookhouse.server.pool.plans import WorkerPlan
    from cookhouse.server.service import Service
    from cookhouse.server.storage.store.store import Store

_log = logging.getLogger(__name__)
_STDIN = 0
_SESSIONS_SECONDS = 2.0
_EXIT_LOST = 75
"""EX_TEMPFAIL: start it again."""
_LOST = (
    "error: this server was not heard of for some seconds, and another has taken its sessions over; nothing that it "
    "had accepted is lost. Start it again"
)


def run_server(
    options: ServiceOptions,
    *,
    address: tuple[str, int],
    database: str | None = None,
    sharing: "Sharing | None" = None,
    make_worker: "Callable[[WorkerOptions], Worker]",
    plans: "Sequence[WorkerPlan] | None" = None,
    watch_stdin: bool = False,
    on_ready: Callable[[str, str], None],
    say: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGINT, SIGTERM or, with `watch_stdin`, the end of stdin: see `Ending`.

    `address`: a host and a port, 0 for a free one. `make_worker` makes each of the workers in `plans` (None: one that
    does all), and makes it again when it is lost. `on_ready` is given the URL and what they compute on; what else a
    person may want to know is said, and warned of where it went wrong. `database` is the URL of another than the one in
    the state folder, which servers with `sharing` share: one that another has taken for dead ends its process at once.
    Who connects before the engine is ready waits for it. Call it in the main thread.

    Raises:
        InputError: the address, the keys, a state folder, the database, the device, the precision or a base model
            cannot be used.
    """
    stdin = _Stdin()
    if watch_stdin:
        threading.Thread(target=stdin.read, name="stdin", daemon=True).start()
    # Begun at once; what cannot be used is reported while it goes on.
    libraries = loading()
    check_keys(options.api_keys)
    state_dir = options.state_dir
    with bind(*address) as listener, lock_state_dir(state_dir):
        _wait_for_either(libraries, stdin.ended)
        if stdin.ended.done():
            return
        libraries.result()
        from cookhouse.server.pool.plans import FOLDER, WorkerPlan, worker_options
        from cookhouse.server.service import Service
        from cookhouse.server.storage.store.store import Store

        _raise_descriptor_limit()
        shutil.rmtree(state_dir / FOLDER, ignore_errors=True)
        store = None if database is None else Store(database, is_shared=sharing is not None)
        service = Service(
            options,
            lambda plan: make_worker(worker_options(options.settings, state_dir, plan)),
            plans=plans or [WorkerPlan()],
            store=store,
            leases=None if sharing is None or store is None else leases_of(sharing, store),
            say=say,
            warn=warn,
        )
        answer = partial(
            _answer,
            service,
            listener,
            stdin,
            say=say,
            ends_sessions="eof" in options.end_sessions,
            on_ready=partial(on_ready, _url(address[0], listener)),
        )
        try:
            asyncio.run(_serve(service, stdin, answer))
        finally:
            service.shut_down()


def leases_of(sharing: "Sharing", store: "Store") -> "Leases":
    """Raises as `Leases`."""
    from cookhouse.server.leases.leases import Leases

    return Leases(store, url=sharing.url, folder=sharing.folder.absolute(), on_lost=_end_lost)


def _end_lost() -> None:
    """End at once, in whatever thread: any further work would conflict with the server that took its place."""
    with contextlib.suppress(OSError):
        os.write(2, f"{_LOST}\n".encode())
    os._exit(_EXIT_LOST)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        InputError: the port is in use, or the host is none of this machine.
    """
    if not 0 <= port < 2**16:
        raise InputError(f"port {port} does not exist; allowed are 0 (a free one) to {2**16 - 1}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError(f"cannot listen on {host!r}: {error.strerror}; give an address of this machine") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError):
            why, way_out = "is not allowed", "pass a port above 1023"
        elif error.errno == errno.EADDRINUSE:
            why, way_out = "is in use", "stop the process that holds it, or pass another port (0 takes a free one)"
        else:
            why, way_out = f"cannot be used: {error.strerror}", "give an address of this machine"
        raise InputError(f"port {port} on {host} {why}; {way_out}") from error
    return listener


async def _serve(service: "Service", stdin: "_Stdin", answer: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Open the service, and `answer`, which is given what the engine computes on."""
    opening = asyncio.ensure_future(service.open())
    try:
        await asyncio.wait((opening, asyncio.wrap_future(stdin.ended)), return_when=asyncio.FIRST_COMPLETED)
        if not stdin.ended.done():
            await answer((await opening).description)
    finally:
        opening.cancel()
        await service.close()


async def _answer(
    service: "Service",
    listener: socket.socket,
    stdin: "_Stdin",
    engine: str,
    *,
    say: Callable[[str], None],
    ends_sessions: bool,
    on_ready: Callable[[str], None],
) -> None:
    from cookhouse.server.access.connections import Connections, limits_of
    from cookhouse.server.access.serving import make_server
    from cookhouse.server.http.app import create_app

    limits = service.settings
    connections = Connections(
        limits_of(limits.max_connections, limits.max_address_connections, limits.head_seconds), service.keys.has
    )
    app = create_app(service, is_loopback=ipaddress.ip_address(listener.getsockname()[0]).is_loopback)
    server = make_server(app, connections)
    loop = asyncio.get_running_loop()
    ending = Ending(service, server, is_for_one=ends_sessions, say=say)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.by_signal)
    stdin.drains.add_done_callback(lambda _: _call_in(loop, ending.drain))
    stdin.ended.add_done_callback(lambda _: _call_in(loop, ending.by_eof))
    on_ready(engine)  # the socket listens and all is loaded: who connects now is answered in a moment
    await server.serve(sockets=[listener])


def _wait_for_either(*futures: "ConcurrentFuture[Any]") -> None:
    done = threading.Event()
    for future in futures:
        future.add_done_callback(lambda _: done.set())
    done.wait()


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # closed already
        loop.call_soon_threadsafe(call)


class _Stdin:
    """Reader of stdin: any word asks the server to drain, the end of it to stop."""

    def __init__(self) -> None:
        self.drains: ConcurrentFuture[None] = ConcurrentFuture()
        self.ended: ConcurrentFuture[None] = ConcurrentFuture()

    def read(self) -> None:
        """In a thread."""
        # os.read, since a thread inside a buffered read breaks the interpreter's shutdown.
        while os.read(_STDIN, 4096):
            if not self.drains.done():
                self.drains.set_result(None)
        self.ended.set_result(None)


def _raise_descriptor_limit() -> None:
    """Allow as many open connections as the system lets us: a sampler may hold two thousand long polls."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


class Ending:
    """Ends a service and the server around it. Lives on the event loop.

    SIGINT, SIGTERM       drains; again: at once; again: without waiting for answers to go out
    a word on stdin       drains; again: nothing
    the end of stdin      at once

    Where the holder of stdin is the only client, the sessions end with it, and signals are for it alone: a batch queue
    sends them to both, and the client has something to save.
    """

    def __init__(
        self, service: "Service", server: "uvicorn.Server", *, is_for_one: bool, say: Callable[[str], None]
    ) -> None:
        """`is_for_one`: the holder of stdin is the only client."""
        self._service = service
        self._server = server
        self._is_for_one = is_for_one
        self._say = say
        self._task: asyncio.Task[None] | None = None

    def by_signal(self) -> None:
        if self._is_for_one:
            return
        if self._task is None:
            self.drain()
        else:
            self.at_once()

    def drain(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name="drain")

    def by_eof(self) -> None:
        if self._is_for_one:
            self._task = asyncio.create_task(self._end_sessions(), name="end of the sessions")
        else:
            self.at_once()

    def at_once(self) -> None:
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True
        self._service.dismiss_waiters()

    async def _drain(self) -> None:
        seconds = self._service.settings.drain_seconds
        self._say(f"stopping once what was accepted is answered, after {seconds:g} s at most")
        try:
            if not await self._service.drain(seconds):
                self._say(f"not all was answered in {seconds:g} s")
            await self._service.hand_over()
        finally:
            self.at_once()

    async def _end_sessions(self) -> None:
        try:
            async with asyncio.timeout(_SESSIONS_SECONDS):
                await self._service.lifecycle.end_all("interrupted")
        except Exception:
            _log.exception("the sessions of a client that is gone have not been ended")
        finally:
            self.at_once()
