"""Check of a write-ahead log of SQLite's: whether it is as it was written.

SQLite takes a frame whose checksum is wrong for the end of the log, as a power cut leaves it, and drops what is behind
it without a word. The format is that of https://www.sqlite.org/walformat.html; F frames, W words of 32 bits.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_BIG_ENDIAN, _LITTLE_ENDIAN = 0x377F0683, 0x377F0682
_INDEX = struct.Struct("=4x4x4xBxHI4x8x8s8x")
"""Of the index in shared memory: whether it is set, the page's size, the number of frames and the salts."""


@dataclass(frozen=True, slots=True)
class _Frame:
    salts: bytes
    is_commit: bool
    is_whole: bool
    """Whether its checksum is that of what stands there, going on from the one that the frame before it has."""


def log_damage(database: Path) -> str | None:
    """Why frames of a log that nobody has open are not what was written; None: they are, or there is no log. What was
    written last is compared where the index of its last writer lies next to it, as it does but on a copied folder.

    Raises:
        OSError: it cannot be read.
    """
    log = database.with_name(f"{database.name}-wal")
    content = log.read_bytes() if log.exists() else b""
    if len(content) < _HEADER_BYTES + _FRAME_HEADER_BYTES:
        return None
    magic, _, page_bytes = struct.unpack_from(">III", content)
    salts = content[16:24]
    if not _is_header_whole(content):
        first = content[_HEADER_BYTES + 8 : _HEADER_BYTES + 16]
        return "its header has changed" if _num_bits_apart(first, salts) <= 1 else None
    frames = list(_frames(content, page_bytes, big_endian=magic == _BIG_ENDIAN))
    num_whole = next((at for at, frame in enumerate(frames) if frame.salts != salts or not frame.is_whole), len(frames))
    num_written = max(_num_followed(frames, num_whole, salts), _num_indexed(database, salts))
    if num_whole < num_written:
        return f"frame {num_whole + 1} of the {num_written} that were written has changed"
    return None


def _num_followed(frames: Sequence[_Frame], num_whole: int, salts: bytes) -> int:
    """Number of frames on the disk before the last that is whole behind one that is not; 0: none. A commit is there
    before what follows it is written.
    """
    behind = [at for at in range(num_whole, len(frames)) if frames[at].salts == salts]
    commit = next((at for at in behind if frames[at].is_commit), len(frames))
    return max((at + 1 for at in behind if at > commit and frames[at].is_whole), default=0)


def _num_indexed(database: Path, salts: bytes) -> int:
    """Number of frames in the index that the last writer left; 0 where it is of another log, or not there."""
    index = database.with_name(f"{database.name}-shm")
    content = index.read_bytes()[: 2 * _INDEX.size] if index.exists() else b""
    if len(content) < 2 * _INDEX.size or content[: _INDEX.size] != content[_INDEX.size :]:
        return 0
    is_set, _, num_frames, indexed_salts = _INDEX.unpack_from(content)
    return num_frames if is_set and indexed_salts == salts else 0


def _is_header_whole(content: bytes) -> bool:
    magic, version, page_bytes = struct.unpack_from(">III", content)
    if magic not in (_BIG_ENDIAN, _LITTLE_ENDIAN) or not 512 <= page_bytes <= 65536 or page_bytes & (page_bytes - 1):
        return False
    stored = struct.unpack_from(">II", content, 24)
    return version == 3007000 and _sum((0, 0), _words(content[:24], big_endian=magic == _BIG_ENDIAN)) == stored


def _frames(content: bytes, page_bytes: int, *, big_endian: bool) -> Iterator[_Frame]:
    before = struct.unpack_from(">II", content, 24)
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    for at in range(_HEADER_BYTES, len(content) - frame_bytes + 1, frame_bytes):
        page = content[at + _FRAME_HEADER_BYTES : at + frame_bytes]
        stored = struct.unpack_from(">II", content, at + 16)
        found = _sum(before, _words(content[at : at + 8] + page, big_endian=big_endian))
        is_commit = content[at + 4 : at + 8] != bytes(4)
        yield _Frame(salts=content[at + 8 : at + 16], is_commit=is_commit, is_whole=found == stored)
        before = stored


def _words(content: bytes, *, big_endian: bool) -> NDArray[np.uint32]:
    return np.frombuffer(content, ">u4" if big_endian else "<u4").astype(np.uint32)


def _sum(before: tuple[int, int], words_W: NDArray[np.uint32]) -> tuple[int, int]:
    """SQLite's: for each two words a, b: s0 += a + s1; s1 += b + s0. Modulo 2**32, as one product."""
    factors = _factors(words_W.size)
    with np.errstate(over="ignore"):
        sums = factors[:, :2] @ np.array(before, np.uint32) + factors[:, 2:] @ words_W
    return int(sums[0]), int(sums[1])


@cache
def _factors(num_words: int) -> NDArray[np.uint32]:
    """Factors by which the two sums before, and then each word, count in the two sums. [2, 2 + W]"""
    factors = np.zeros((2, 2 + num_words), np.uint32)
    s0, s1 = factors
    s0[0] = s1[1] = 1
    with np.errstate(over="ignore"):
        for at in range(2, 2 + num_words, 2):
            s0 += s1
            s0[at] += np.uint32(1)
            s1 += s0
            s1[at + 1] += np.uint32(1)
    return factors


def _num_bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()
