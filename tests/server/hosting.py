"""A real server on loopback, in a thread of the test's process."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from cookhouse.engine.contract import Engine
from cookhouse.server.app import create_app
from cookhouse.server.main import bind
from cookhouse.server.service import Service
from cookhouse.server.settings import Settings

KEY = "tml-test-key-0001"
OTHER_KEY = "tml-test-key-0002"


@dataclass(frozen=True, kw_only=True)
class Host:
    url: str
    service: Service

    def on_loop(self, call: Callable[[], Any]) -> None:
        """Run something where the service lives."""
        loop = self.service.futures.loop
        done = asyncio.run_coroutine_threadsafe(_call(call), loop)
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
    """Serve until the block ends; for `sources` see `BaseModels.fill`, for further `options` `Service`."""
    service = Service(api_keys=[KEY, OTHER_KEY], state_dir=state_dir, settings=settings or Settings(), **options)
    service.sequencer.start(make_engine)
    service.base_models.fill(service.sequencer.ready.result(60), sources)
    listener: socket.socket = bind("127.0.0.1", 0)
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
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), name="uvicorn")
    thread.start()
    try:
        yield Host(url=f"http://127.0.0.1:{listener.getsockname()[1]}", service=service)
    finally:
        server.should_exit = True
        service.futures.loop.call_soon_threadsafe(service.dismiss_waiters)
        thread.join(10)
        assert not thread.is_alive()
