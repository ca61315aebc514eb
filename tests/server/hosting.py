"""A real server on loopback, in a thread of the test's process."""

import asyncio
import contextlib
import faulthandler
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from cookhouse.engine.contract import Worker, WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.transports.thread import InThread
from cookhouse.server.http.app import create_app
from cookhouse.server.main import bind
from cookhouse.server.pool.plans import worker_options
from cookhouse.server.service import Service
from cookhouse.server.settings import ServiceOptions, Settings

KEY = "tml-test-key-0001"
OTHER_KEY = "tml-test-key-0002"


@dataclass(frozen=True, kw_only=True)
class Host:
    url: str
    service: Service
    loop: asyncio.AbstractEventLoop

    def on_loop(self, call: Callable[[], Any]) -> None:
        """Run something where the service lives."""
        done = asyncio.run_coroutine_threadsafe(_call(call), self.loop)
        done.result(10)


async def _call(call: Callable[[], Any]) -> None:
    result = call()
    if asyncio.iscoroutine(result):
        await result


@contextlib.contextmanager
def hosted(
    state_dir: Path,
    make_engine: Callable[[], Engine],
    settings: Settings | None = None,
    sources: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[Host]:
    """Serve until the block ends; for `sources` and further `options` see `ServiceOptions` and `Service`."""
    with hosted_over(state_dir, partial(InThread, make_engine), settings, sources, **options) as host:
        yield host


@contextlib.contextmanager
def hosted_over(
    state_dir: Path,
    make_worker: Callable[[WorkerOptions], Worker],
    settings: Settings | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    **options: Any,
) -> Iterator[Host]:
    """As `hosted`, with any worker."""
    settings = settings or Settings()
    own = {name: options.pop(name) for name in [*options] if name in ServiceOptions.__dataclass_fields__}
    service = Service(
        ServiceOptions(api_keys=[KEY, OTHER_KEY], state_dir=state_dir, settings=settings, sources=sources, **own),
        lambda plan: make_worker(worker_options(settings, state_dir, plan)),
        **options,
    )
    listener: socket.socket = bind("127.0.0.1", port)
    opened: Future[asyncio.AbstractEventLoop] = Future()
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service),
            log_config=None,
            access_log=False,
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=lambda: asyncio.run(_serve(service, server, listener, opened)), name="uvicorn")
    thread.start()
    loop = opened.result(60)
    try:
        yield Host(url=f"http://127.0.0.1:{listener.getsockname()[1]}", service=service, loop=loop)
    finally:
        server.should_exit = True
        loop.call_soon_threadsafe(service.dismiss_waiters)
        thread.join(60)
        if thread.is_alive():
            faulthandler.dump_traceback()  # of every thread: what keeps the server from closing
        assert not thread.is_alive()


async def _serve(
    service: Service,
    server: uvicorn.Server,
    listener: socket.socket,
    opened: "Future[asyncio.AbstractEventLoop]",
) -> None:
    try:
        await service.open()
    except BaseException as error:
        listener.close()
        await service.close()
        opened.set_exception(error)
        return
    opened.set_result(asyncio.get_running_loop())
    await server.serve(sockets=[listener])
