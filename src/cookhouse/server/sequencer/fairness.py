"""Fairness between tenants: the bytes of each that the server holds, and a lock that goes round among them.

Bytes are held of bodies while they are read, and of requests, as arrays, until they are answered.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from cookhouse.server.refusals import BusyError

_OWN_PART = 8
"""One in so many of the bytes of a tenant are its own: no other can take them."""


class HeldBytes:
    """Bytes by owner. Lives on the event loop.

    An owner holds at most `max_owner_bytes`, all together `max_bytes`, and beyond the latter each its own part. One
    that holds nothing may always begin.
    """

    def __init__(self, *, max_bytes: int, max_owner_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._max_owner_bytes = max_owner_bytes
        self._by_owner: Counter[str] = Counter()

    @property
    def by_owner(self) -> Mapping[str, int]:
        return dict(self._by_owner)

    def take(self, owner: str, num_bytes: int) -> None:
        """Hold more.

        Raises:
            BusyError: the owner holds too much, or all together do; nothing was taken.
        """
        mine, all_bytes = self._by_owner[owner], self._by_owner.total()
        if mine and mine + num_bytes > self._max_owner_bytes:
            raise BusyError(
                f"{mine} bytes of your requests wait, of at most {self._max_owner_bytes}; send more when some are done"
            )
        is_own = not mine or mine + num_bytes <= self._max_owner_bytes // _OWN_PART
        if not is_own and all_bytes + num_bytes > self.max_bytes:
            raise BusyError(f"{all_bytes} bytes of all tenants' requests wait; send more when some are done")
        self._by_owner[owner] += num_bytes

    def take_anyway(self, owner: str, num_bytes: int) -> None:
        """Hold more, of what was accepted before."""
        self._by_owner[owner] += num_bytes

    def give_back(self, owner: str, num_bytes: int) -> None:
        """Hold less."""
        left = self._by_owner[owner] - num_bytes
        assert left >= 0
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]

    @contextmanager
    def lease(self, owner: str) -> Iterator["Lease"]:
        """Lease of shares: those taken in the block are given back at its end."""
        lease = Lease(self, owner)
        try:
            yield lease
        finally:
            self.give_back(owner, lease.num_bytes)


@dataclass(slots=True)
class Lease:
    """Bytes that one piece of work holds."""

    held: HeldBytes
    owner: str
    num_bytes: int = 0

    def take(self, num_bytes: int) -> None:
        """Hold more. Raises as `HeldBytes.take`."""
        self.held.take(self.owner, num_bytes)
        self.num_bytes += num_bytes


class FairLock:
    """Of what one caller at a time can have, such as a thread that reads bodies: owners in rotation, the callers of
    each in order. Lives on the event loop.
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
