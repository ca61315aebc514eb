import random
from collections.abc import Callable

import pytest
import zstandard

from cookhouse.errors import InputError
from cookhouse.server.access.bodies import body_of
from cookhouse.server.refusals import TooLargeError


def read(data: bytes, encoding: str, max_bytes: int, count: Callable[[bytes], None] | None = None) -> bytes:
    return bytes(body_of(bytearray(data), encoding, max_bytes).read(count))


def test_zstd_is_read_and_bounded() -> None:
    """Would catch a small body that becomes gigabytes."""
    body = b"tokens" * 1000
    packed = zstandard.ZstdCompressor().compress(body)
    assert read(packed, "zstd", 6000) == body
    with pytest.raises(TooLargeError, match="6000 bytes once decompressed"):
        read(packed, "zstd", 5999)
    bomb = zstandard.ZstdCompressor().compress(bytes(2**28))
    assert len(bomb) < 20_000
    with pytest.raises(TooLargeError):
        read(bomb, "zstd", 2**20)


@pytest.mark.parametrize("encoding", ["zstd", ""])
def test_a_body_is_counted_while_it_is_read(encoding: str) -> None:
    """Would catch bytes that are not counted, or counted twice, and a refusal when all has been decompressed."""
    body = random.Random(1).randbytes(2**21 + 5)
    data = zstandard.ZstdCompressor().compress(body) if encoding else body
    seen = bytearray()
    assert read(data, encoding, 2**22, seen.extend) == body
    assert seen == body

    def refuse(piece: bytes) -> None:
        pieces.append(len(piece))
        raise TooLargeError("enough")

    pieces: list[int] = []
    with pytest.raises(TooLargeError, match="enough"):
        read(data, encoding, 2**22, refuse)
    assert sum(pieces) <= 2**18


@pytest.mark.parametrize("name", ["garbage", "cut short", "no size"])
def test_bad_zstd_is_the_callers_fault(name: str) -> None:
    """Would catch half a request being taken for a whole one."""
    packed = zstandard.ZstdCompressor().compress(bytes(range(256)) * 100)
    bodies = {
        "garbage": b"not zstd at all",
        "cut short": packed[:-5],
        "no size": zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 99),
    }
    with pytest.raises(InputError):
        read(bodies[name], "zstd", 2**20)


def test_other_encodings_are_named() -> None:
    """Would catch compressed bytes parsed as if they were plain."""
    with pytest.raises(InputError, match="gzip"):
        read(b"x", "gzip", 10)
    assert read(b"x", "", 10) == b"x"


@pytest.mark.parametrize("encoding", ["zstd", ""])
def test_the_beginning_of_a_body(encoding: str) -> None:
    """Would catch a server that decompresses all of what it only passes on."""
    body = random.Random(1).randbytes(2**21)
    data = bytearray(zstandard.ZstdCompressor().compress(body) if encoding else body)
    assert body_of(data, encoding, 2**22).beginning(100) == body[:100]
    assert body_of(data, encoding, 2**22).beginning(2**22) == body
    if encoding:
        with pytest.raises(InputError, match="not valid zstd"):
            body_of(data[:9] + b"\xff" * 100, encoding, 2**22).beginning(100)
