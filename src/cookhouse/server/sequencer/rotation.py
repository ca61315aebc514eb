"""Whose turn it is at something that one call at a time can have, such as a thread that reads bodies."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Rotation:
    """Owners in rotation, the calls of each in order. Lives on the event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Owners that wait, the next one first."""

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for the owner's turn, and have it until the end of the block."""
        await self._begin(owner)
        try:
            yield
        finally:
            self._end()

    async def _begin(self, owner: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # its turn had come
                self._end()
            raise

    def _end(self) -> None:
        while self._waiting:
            owner, calls = self._waiting.popitem(last=False)
            first = calls.popleft()
            if calls:
                self._waiting[owner] = calls
            if not first.done():
                first.set_result(None)
                return
        self._is_taken = False
