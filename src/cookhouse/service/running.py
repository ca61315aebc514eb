"""A server on this machine that answers, and how it is kept up."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

from cookhouse.errors import InputError, ServiceError
from cookhouse.service.process import ServerProcess, started_server

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Between two tries of a server whose cluster is away; doubled each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Given up at the `max_deaths`-th death within `within_seconds` of serving; the time that starts take is not
    counted, so that a server which dies while it starts is given up, too.
    """

    max_deaths: int = 3
    within_seconds: float = 60.0


class Deaths:
    """The deaths of one server."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._served_seconds = 0.0
        self._at: list[float] = []

    def note(self, served_seconds: float) -> bool:
        """Note a death after so many seconds of serving; whether it is to be given up."""
        self._served_seconds += served_seconds
        since = self._served_seconds - self._restarts.within_seconds
        self._at = [*(at for at in self._at if at >= since), self._served_seconds]
        return len(self._at) >= self._restarts.max_deaths


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """Command and settings with which a server is started, each time."""

    arguments: Sequence[str]
    first: Sequence[str]
    """What is said at its first start alone."""
    api_keys: Sequence[str]
    database: str | None
    """URL of another than the one in its state folder."""
    lock: IO[bytes]
    log: IO[bytes]
    command: Sequence[str]
    say: Callable[[str], None]
    warn: Callable[[str], None]

    @property
    def may_be_away(self) -> bool:
        """True if what a server refuses that has served before may come right: Ray's cluster comes back, or grows."""
        return "--ray" in self.command

    async def serve(self, process: ServerProcess, *, port: int, is_first: bool) -> tuple[str, str | None]:
        """See `ServerProcess.serve`."""
        first = self.first if is_first else ()
        try:
            told = await process.serve(
                [*self.arguments, *first, "--port", str(port), "--watch-stdin", "--json"],
                environ={
                    "COOKHOUSE_API_KEYS": ",".join(self.api_keys),
                    "COOKHOUSE_DATABASE": self.database or "",  # never the one of this process's environment
                },
                lock=self.lock,
                log=self.log,
                say=self.say,
                warn=self.warn,
            )
        except asyncio.CancelledError:
            process.terminate()
            raise
        if is_first:
            for warning in process.log.warnings():  # why it will be slow, for one: nobody reads its log before it fails
                _log.warning("%s", warning)
        return told


class LocalServer:
    """A server that this process started and that answers requests."""

    def __init__(self, start: ServerStart, process: ServerProcess, *, url: str, engine: str | None) -> None:
        self.url = url
        self.api_key = start.api_keys[0]
        self.engine = engine
        """What it computes on, in words; None if it does not say."""
        self.process = process
        """The present one."""
        self._start = start
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Have it answer what it has accepted, and end; `keep` returns then."""
        self._draining.set()
        self.process.drain()

    async def keep(self, restarts: Restarts) -> None:
        """Start it again whenever it dies, at the same address, until it has drained. One that is on Ray is tried again
        as long as it refuses what its cluster has.

        Raises:
            ServiceError: it died too often; the last lines of its log are in the message.
        """
        deaths, port = Deaths(restarts), urlsplit(self.url).port or 0
        started_at, pause_seconds = time.monotonic(), 0.0
        death = str(await self.process.wait_for_death())
        while not self._draining.is_set():
            if pause_seconds:
                self._start.warn(f"{death.splitlines()[0]}; trying again in {pause_seconds:g} s")
                if await self._drains_within(pause_seconds):
                    return
            elif deaths.note(time.monotonic() - started_at):
                raise ServiceError(f"{death}\nit is not started again: it has died {restarts.max_deaths} times")
            else:
                self._start.warn(f"{death.splitlines()[0]}; it is started again, and work goes on")
            async with started_server(self._start.command) as process:
                try:
                    await self._start.serve(process, port=port, is_first=False)
                except InputError as error:
                    started_at, death = time.monotonic(), f"the embedded server cannot start again: {error}"
                    if self._start.may_be_away:
                        pause_seconds = min(2 * pause_seconds or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                    continue
                except ServiceError as error:
                    started_at, pause_seconds, death = time.monotonic(), 0.0, str(error)
                    continue
                self.process = process
                if self._draining.is_set():
                    process.drain()
                started_at, pause_seconds = time.monotonic(), 0.0
                death = str(await process.wait_for_death())

    async def _drains_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._draining.wait(), seconds)
        except TimeoutError:
            return False
        return True
