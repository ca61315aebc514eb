"""The embedded service of a run: started when it is first needed, kept up while the run works, and stopped with it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from cookhouse.service.running import LocalServer, Restarts

_T = TypeVar("_T")


class EmbeddedService:
    """The server of one run, started when it is first needed and stopped on leaving the `async with`.

    A run asks for it after its data has been read and found good, so that bad data starts nothing. One that dies is
    started again; `guard` ends work whose server dies too often: the SDK would retry for minutes.

        run     start() ────── _wanted ─────►  task: opens the server, sets `_server`, keeps it up;
                start() ◄───── _server ──────        cancelled on leaving, it stops the server
                guard(work) ◄─ raises ───────
    """

    def __init__(
        self, open_server: Callable[[], AbstractAsyncContextManager[LocalServer]], restarts: Restarts | None = None
    ) -> None:
        self._open_server = open_server
        self._restarts = restarts or Restarts()
        self._wanted = asyncio.Event()

    async def __aenter__(self) -> "EmbeddedService":
        loop = asyncio.get_running_loop()
        self._server: asyncio.Future[LocalServer] = loop.create_future()
        self._task = loop.create_task(self._serve())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, self._server, return_exceptions=True)

    @property
    def is_started(self) -> bool:
        """True if it answers."""
        return self._server.done()

    async def start(self) -> LocalServer:
        """Start the server unless it runs, and wait until it answers.

        Raises:
            InputError: the server refused what it was given.
            ServiceError: it died before it was ready.
        """
        self._wanted.set()
        return await asyncio.shield(self._server)

    async def guard(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await `work`, and cancel it if the server cannot be kept up meanwhile.

        Raises:
            ServiceError: the server died too often; the last lines of its log are in the message.
        """
        return await guarded(work, self._task)

    async def drain(self) -> None:
        """Have the server answer what it has accepted and end, and wait for that."""
        (await self.start()).drain()
        await asyncio.wait([self._task])

    async def _serve(self) -> None:
        try:
            await self._wanted.wait()
            async with self._open_server() as server:
                self._server.set_result(server)
                await server.keep(self._restarts)
        except Exception as error:
            if not self._server.done():
                self._server.set_exception(error)
            raise
        finally:
            self._server.cancel()  # whoever still waits in `start` must not wait for ever


async def guarded(work: Coroutine[Any, Any, _T], watching: asyncio.Future[None]) -> _T:
    """Await `work`; if `watching` raises first, cancel the work and raise that."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if watching.done() and not working.done():
            await watching
        return await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
