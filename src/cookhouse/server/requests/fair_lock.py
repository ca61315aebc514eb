"""Lock that goes round among tenants, of what one caller at a time can have. Lives on the event loop."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """Of what one caller at a time can have, such as a thread that reads bodies: owners in rotation, the callers of
    each in order.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Owners that wait, the next one first."""

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Wait for the lock, and have it until the end of the block."""
        await self._acquire(owner)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, owner: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it had got it
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            owner, calls = self._waiting.popitem(last=False)
            first = calls.popleft()
            if calls:
                self._waiting[owner] = calls
            if not first.done():
                first.set_result(None)
                return
        self._is_taken = False
