"""The text of each token of a sequence, where some tokens are only a part of a character."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from cookhouse.chat.streaming import UNFINISHED

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""Text of tokens, special ones spelled out."""

_MAX_JOINED = 4
"""Tokens of one character: UTF-8 has no longer ones."""
_CACHED_PAIRS = 1 << 16


@dataclass(frozen=True, slots=True)
class TokenText:
    """One token; or those that only together are whole characters."""

    start: int
    """Index of its first token."""
    num_tokens: int
    text: str


class TokenTexts:
    """Texts of tokens by one decoder. What it decoded for two neighbors it keeps for the next such pair."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._after = lru_cache(maxsize=_CACHED_PAIRS)(self._text_after)

    def __call__(self, tokens: Sequence[int], before: Sequence[int] = ()) -> Iterator[TokenText]:
        """The texts in order; joined they are the text of `tokens` behind `before`, as long as these end in a whole
        character.
        """
        context = tuple(before[-1:])  # some tokenizers drop the space of the first token
        start = 0
        for end in range(1, len(tokens) + 1):
            text = self._after(context, tuple(tokens[start:end]))
            if text.endswith(UNFINISHED) and end < len(tokens) and end - start < _MAX_JOINED:
                continue
            yield TokenText(start, end - start, text)
            context, start = (tokens[end - 1],), end

    def _text_after(self, context: tuple[int, ...], tokens: tuple[int, ...]) -> str:
        known = self._decode(context) if context else ""
        return self._decode([*context, *tokens])[len(known) :]
