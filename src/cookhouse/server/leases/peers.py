"""Peers: checks that each of the other servers answers at its URL. Lives on the event loop.

appears ──► asked for its id ── says it ──► work may be sent there
                  ▲  └─ something else, or nothing ──► logged once
                  └─────── a little later ──┘
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from cookhouse.server.leases.forwarding import UnreachableError
from cookhouse.server.leases.members import SILENT_SECONDS, Member

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0
_SURE_SECONDS = 2 * SILENT_SECONDS
"""A server that does not answer for so long, and is heard of all the same, is not one that has died."""

Ask = Callable[[str], Awaitable[str]]
"""The id of the server at a URL; raises UnreachableError."""


class Peers:
    def __init__(self, server_id: str, ask: Ask) -> None:
        self._server_id = server_id
        self._ask = ask
        self._asking: dict[str, asyncio.Task[None]] = {}
        """By server: of those that are there."""
        self._answering: set[str] = set()

    def look(self, living: Sequence[Member]) -> None:
        """Ask those that have come, and forget those that have gone."""
        others = {member.server_id: member for member in living if member.server_id != self._server_id}
        for server_id in self._asking.keys() - others.keys():
            self._asking.pop(server_id).cancel()
            self._answering.discard(server_id)
        for server_id in others.keys() - self._asking.keys():
            task = asyncio.create_task(self._find(others[server_id]), name=f"asking {others[server_id].url}")
            self._asking[server_id] = task

    def answers(self, member: Member) -> bool:
        return member.server_id in self._answering

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _find(self, member: Member) -> None:
        is_told = False
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + _SURE_SECONDS
        while (failure := await self._failure(member)) is not None:
            if not is_told and loop.time() >= tell_at:
                is_told = True
                _log.warning(
                    "a server joined that says it is reached at %s, and is not: %s. Nothing is sent there until it is; "
                    "see its --server-url, and what lies between",
                    member.url,
                    failure,
                )
            await asyncio.sleep(_AGAIN_SECONDS)
        self._answering.add(member.server_id)
        if is_told:
            _log.warning("the server at %s is reached now", member.url)

    async def _failure(self, member: Member) -> str | None:
        try:
            found = await self._ask(member.url)
        except UnreachableError as error:
            return str(error)
        return None if found == member.server_id else "another server answers there"
