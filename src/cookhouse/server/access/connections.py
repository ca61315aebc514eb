"""Limits of connections, and the choice of those that have to go: never one that has sent a key.

accepted ──► no key yet: so many in all, and of one address; the oldest goes first, one without a request in progress
│          a head that is not there after some seconds: closed
└─ a request with a key ──► counts no longer
"""

import asyncio
import ipaddress
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cookhouse.errors import InputError

_log = logging.getLogger(__name__)
_SPARE_DESCRIPTORS = 64
"""For the journal, the database, files of checkpoints and connections to the other servers."""
_LEAST, _MOST = 16, 2**16
_ROOM_TICKS = 8
"""Turns of the event loop after which what a new connection has sent with its first packets has been read."""
_LOG_SECONDS = 60.0
_IPV6_PREFIX = 64
"""One customer of a provider has so many bits of an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_connections: int
    """In all, at a time."""
    max_address_connections: int
    """Of one address, at a time, that have not sent a key."""
    head_seconds: float
    """Until a request's head has come."""


def limits_of(max_connections: int | None, max_address_connections: int | None, head_seconds: float) -> Limits:
    """None: what the limit of open files leaves, and half of the connections.

    Raises:
        InputError: the limit of open files is too low.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_open = len(list(Path("/dev/fd").iterdir()))
    room = _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft - is_open - _SPARE_DESCRIPTORS)
    if room < (max_connections or _LEAST):
        raise InputError(
            f"the limit of open files is {soft}, which leaves {max(0, room)} for connections; at least "
            f"{max_connections or _LEAST} are needed: raise it (ulimit -n 4096)"
            + ("" if max_connections is None else ", or lower --max-connections")
        )
    most = max_connections or room
    return Limits(
        max_connections=most,
        max_address_connections=min(most, max_address_connections or most // 2),
        head_seconds=head_seconds,
    )


class Connection(Protocol):
    @property
    def is_idle(self) -> bool:
        """True if it may go: no request of it is being answered, and what came with its beginning has been read."""

    @property
    def age_seconds(self) -> float: ...

    def abort(self) -> None:
        """Close it at once; it is removed by then."""


class Connections:
    """Connections of a server. Lives on the event loop."""

    def __init__(self, limits: Limits, is_key: Callable[[str], bool]) -> None:
        self.limits = limits
        self.is_key = is_key
        self._strangers: dict[Connection, str] = {}
        """Those that have not sent a key, the oldest first, with their addresses."""
        self._num_of: Counter[str] = Counter()
        """Of these, by address."""
        self._num_open = 0
        self._closed: Counter[str] = Counter()
        """By why, since it was last logged."""
        self._told_at = float("-inf")

    async def has_room(self, host: str) -> bool:
        """True if one more from this address may be opened: waits some turns of the loop until an older one can go."""
        address = _share_of(host)
        for _ in range(_ROOM_TICKS):
            if self._makes_room(address):
                return True
            await asyncio.sleep(0)
        self._note("refused, since there are as many as there may be")
        return False

    def add(self, connection: Connection, host: str) -> None:
        address = _share_of(host)
        self._num_open += 1
        self._strangers[connection] = address
        self._num_of[address] += 1

    def know(self, connection: Connection) -> None:
        """A connection has sent a key."""
        address = self._strangers.pop(connection, None)
        if address is not None:
            self._num_of[address] -= 1
            if not self._num_of[address]:
                del self._num_of[address]

    def remove(self, connection: Connection) -> None:
        self._num_open -= 1
        self.know(connection)

    def close_late(self, connection: Connection) -> None:
        """Close one whose request's head has not come in time."""
        self._note("closed without a whole request's head")
        connection.abort()

    def note_full(self, error: OSError) -> None:
        """One could not be accepted."""
        self._note(f"not accepted: {error.strerror}")

    def _makes_room(self, address: str) -> bool:
        if self._num_of[address] >= self.limits.max_address_connections:
            return self._evicts(address)
        if self._num_open < self.limits.max_connections:
            return True
        largest = max(self._num_of, key=self._num_of.__getitem__, default=address)
        return self._evicts(largest)

    def _evicts(self, address: str) -> bool:
        """Close the oldest of an address, one without a request in progress where there is such a one."""
        of_address = [one for one, its in self._strangers.items() if its == address]
        idle = next((one for one in of_address if one.is_idle), None)
        oldest = next(iter(of_address), None)
        if idle is None and oldest is not None and oldest.age_seconds > self.limits.head_seconds:
            idle = oldest
        if idle is None:
            return False
        self._note("closed for newer ones")
        idle.abort()
        return True

    def _note(self, what: str) -> None:
        self._closed[what] += 1
        now = time.monotonic()
        if now - self._told_at < _LOG_SECONDS:
            return
        closed = "; ".join(f"{number} {what}" for what, number in self._closed.items())
        _log.warning("connections that have sent no key: %s", closed)
        self._closed.clear()
        self._told_at = now


def _share_of(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
