"""Conversations that say nearly what another says, counted in bounded time.

MinHash with bands (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3): of two texts the
pieces of three words are compared, and 0.8 of all pieces of both are shared by texts that are nearly the same.

Legend: P permutations, S pieces of a text.
"""

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cookhouse.chat import turn_text
from cookhouse.data.rows.shapes import Conversation
from cookhouse.telemetry import ResultNote

MAX_TEXTS = 20_000
"""Conversations that are looked at, the first ones."""
_MAX_WORDS = 256
_PIECE_WORDS = 3
_NEAR = 0.8
_BANDS, _ROWS = 16, 4
_RANDOM = np.random.default_rng(0)
_FACTORS_P = _RANDOM.integers(1, 2**63, _BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
_OFFSETS_P = _RANDOM.integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)


class NearTexts:
    """Texts seen so far, to be asked for one that says nearly the same."""

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.uint64]] = []
        self._first: dict[tuple[int, bytes], int] = {}
        """By band and its hashes: the first text that has them."""

    def find(self, text: str) -> int | None:
        """Number of an earlier text that says nearly the same."""
        pieces = _pieces(text)
        found = dict.fromkeys(self._first[key] for key in _bands(pieces) if key in self._first)
        return next((number for number in found if _shared(pieces, self._pieces[number]) >= _NEAR), None)

    def add(self, text: str) -> None:
        """One more, with the next number."""
        pieces = _pieces(text)
        for key in _bands(pieces):
            self._first.setdefault(key, len(self._pieces))
        self._pieces.append(pieces)


def duplicate_remarks(train: Sequence[Conversation], held_out: Sequence[Conversation]) -> list[str]:
    """Remarks on conversations to train on that say nearly what an earlier one says, and on held-out ones that say
    nearly what one to train on says. Of more than `MAX_TEXTS` to train on the first are looked at.
    """
    seen, some = NearTexts(), train[:MAX_TEXTS]
    repeated = []
    for conversation in some:
        text = _text(conversation)
        if (number := seen.find(text)) is not None:
            repeated.append((conversation.source, some[number].source))
        seen.add(text)
    near = [(each.source, seen.find(_text(each))) for each in held_out[:MAX_TEXTS]]
    leaked = [(source, some[number].source) for source, number in near if number is not None]
    of = "" if len(some) == len(train) else "the first "
    return [
        kind(f"{len(found):,} of {what} say nearly what {other} says; the first is {found[0][0]}, as {found[0][1]}")
        for kind, found, what, other in (
            (str, repeated, f"{of}{len(some):,} conversations", "an earlier one"),
            (ResultNote, leaked, f"{len(held_out):,} held-out conversations", "one that is trained on"),
        )
        if found
    ]


def _text(conversation: Conversation) -> str:
    if conversation.text is not None:
        return conversation.text
    return "\n".join(turn_text(message) for message in conversation.messages if message["role"] != "system")


def _pieces(text: str) -> NDArray[np.uint64]:
    """Hashes of three words each, without repetition; upper and lower case and punctuation are the same."""
    words = re.findall(r"\w+", text[: 32 * _MAX_WORDS].lower())[:_MAX_WORDS]
    hashes = np.array([zlib.crc32(word.encode()) for word in words] or [0], dtype=np.uint64)
    count = max(1, hashes.size - _PIECE_WORDS + 1)
    pieces_S = np.zeros(count, dtype=np.uint64)
    for start in range(min(_PIECE_WORDS, hashes.size)):
        pieces_S = pieces_S * np.uint64(0x9E3779B97F4A7C15) + hashes[start : start + count]
    return np.unique(pieces_S)


def _bands(pieces: NDArray[np.uint64]) -> list[tuple[int, bytes]]:
    mixed_PS = (_FACTORS_P[:, None] * pieces[None, :] + _OFFSETS_P[:, None]) >> np.uint64(32)
    lowest = mixed_PS.min(axis=1).reshape(_BANDS, _ROWS)
    return [(band, hashes.tobytes()) for band, hashes in enumerate(lowest)]


def _shared(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Pieces of both over all pieces, in [0, 1]."""
    both = np.intersect1d(one, other, assume_unique=True).size
    return float(both / (one.size + other.size - both))
