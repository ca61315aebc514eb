"""Request bodies: bounded while they arrive, and when they are decompressed, by what their tenant holds already.

Bytes are held of bodies while they are read, and of requests, as arrays, until they are answered.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import zstandard
from starlette.requests import Request

from cookhouse.errors import InputError
from cookhouse.server.refusals import BusyError, TooLargeError

_MAX_ZSTD_WINDOW_BYTES = 32 * 2**20
_CHUNK_BYTES = 2**18
_OWN_PART = 8
"""One in so many of the bytes of a tenant are its own: no other can take them."""

Count = Callable[[bytes], None]
"""Told of the bytes of a body in order; raises where they are of too much."""


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
        """Lease of a body, whose bytes are given back at the end of the block."""
        lease = Lease(self, owner)
        try:
            yield lease
        finally:
            self.give_back(owner, lease.num_bytes)


@dataclass(slots=True)
class Lease:
    """Bytes that one body holds."""

    held: HeldBytes
    owner: str
    num_bytes: int = 0
    last_part_at: float = field(default_factory=time.monotonic)
    """When something of the body came last."""

    def take(self, num_bytes: int) -> None:
        """Hold more. Raises as `HeldBytes.take`."""
        self.held.take(self.owner, num_bytes)
        self.num_bytes += num_bytes


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it was sent."""

    data: bytearray
    encoding: str
    """`zstd`, or none."""
    num_bytes: int
    """Once it is decompressed."""

    def read(self, count: Count | None = None) -> bytearray:
        """The body itself. Takes time where it is compressed, or counted.

        Raises:
            InputError: it is not what its headers say.
        """
        if self.encoding:
            return _decompressed(self.data, self.num_bytes, count)
        if count is not None:
            for at in range(0, len(self.data), _CHUNK_BYTES):
                count(bytes(self.data[at : at + _CHUNK_BYTES]))
        return self.data

    def beginning(self, num_bytes: int) -> bytes:
        """The first bytes of the body itself. Raises as `read`."""
        if not self.encoding:
            return bytes(self.data[:num_bytes])
        try:
            with _reader(self.data) as reader:
                return reader.read(num_bytes)
        except zstandard.ZstdError as error:
            raise _no_zstd(error) from error


async def read_body(request: Request, lease: Lease, *, max_bytes: int, max_decoded_bytes: int) -> Body:
    """The body of a request, whose bytes are taken by a lease.

    Raises:
        BusyError: the tenant holds too much.
        TooLargeError: it is over a limit; found from its declared length where there is one, else while it arrives.
        InputError: it is not what its headers say.
    """
    declared = request.headers.get("content-length", "")
    num_taken = 0
    if declared.isdigit():
        if int(declared) > max_bytes:
            raise _too_large(int(declared), max_bytes)
        lease.take(num_taken := int(declared))
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        lease.last_part_at = time.monotonic()
        if len(data) > max_bytes:
            raise _too_large(len(data), max_bytes)
        if len(data) > num_taken:
            lease.take(len(data) - num_taken)
            num_taken = len(data)
    body = body_of(data, request.headers.get("content-encoding", ""), max_decoded_bytes)
    if body.encoding:
        lease.take(body.num_bytes)
    return body


def body_of(data: bytearray, encoding: str, max_bytes: int) -> Body:
    """Read a body in its content encoding, of at most `max_bytes` once it is decompressed.

    Raises:
        TooLargeError: it is more.
        InputError: it is not in that encoding.
    """
    if encoding in ("", "identity"):
        return Body(data, encoding="", num_bytes=len(data))
    if encoding != "zstd":
        raise InputError(f"content encoding {encoding!r} is not supported; send zstd or none")
    try:
        num_bytes = zstandard.frame_content_size(data)
    except zstandard.ZstdError as error:
        raise _no_zstd(error) from error
    if num_bytes < 0:
        raise InputError("the zstd frame does not state its content size; compress in one shot")
    if num_bytes > max_bytes:
        raise TooLargeError(
            f"the request has {num_bytes} bytes once decompressed, at most {max_bytes} are accepted; send less at once"
        )
    return Body(data, encoding="zstd", num_bytes=num_bytes)


def _decompressed(data: bytearray, num_bytes: int, count: Count | None) -> bytearray:
    decoded = bytearray(num_bytes)  # pages of it are taken as they are written to
    at = 0
    try:
        with _reader(data) as reader, memoryview(decoded) as view:
            while at < num_bytes and (num_read := reader.readinto(view[at : at + _CHUNK_BYTES])):
                if count is not None:
                    count(bytes(view[at : at + num_read]))
                at += num_read
            if at < num_bytes or reader.read(1):
                raise InputError(f"the zstd frame states {num_bytes} bytes, and does not have so many; send it again")
    except zstandard.ZstdError as error:
        raise _no_zstd(error) from error
    return decoded


def _reader(data: bytearray) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).stream_reader(data)


def _no_zstd(error: zstandard.ZstdError) -> InputError:
    return InputError(f"the body is not valid zstd: {error}")


def _too_large(num_bytes: int, max_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"the request body has {num_bytes} bytes or more, at most {max_bytes} are accepted; send less at a time"
    )
