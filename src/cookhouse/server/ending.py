"""How a serving process ends.

    SIGINT, SIGTERM       drains; again: at once; again: without waiting for answers to go out
    a word on stdin       drains; again: nothing
    the end of stdin      at once

Where the holder of stdin is the only client, the sessions end with it, and signals are for it alone: a batch queue
sends them to both, and the client has something to save.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uvicorn

    from cookhouse.server.service import Service

_log = logging.getLogger(__name__)
_SESSIONS_SECONDS = 2.0


class Ending:
    """Ends a service and the server around it. Lives on the event loop."""

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
                await self._service.session_life.end_all("interrupted")
        except Exception:
            _log.exception("the sessions of a client that is gone have not been ended")
        finally:
            self.at_once()
