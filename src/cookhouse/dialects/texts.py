"""Texts of tokens: of an answer as it grows, cut before the first of its stops, and of tokens alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.chat import UNFINISHED, Encoder


class StopCutter:
    """Text as it comes, up to the first of some stops. What may be the beginning of one is held."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stop: str | None = None
        """The one that was found."""

    @property
    def is_cut(self) -> bool:
        return self.stop is not None

    def feed(self, text: str) -> str:
        """Take more text; what is certain now."""
        if self.is_cut:
            return ""
        text = self._held + text
        found = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, self.stop = min(found, key=lambda one: one[0])
            self._held = ""
            return text[:place]
        length = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - length :]
        return text[: len(text) - length]

    def finish(self) -> str:
        """Text that was held: no stop came of it."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Number of letters at the end of a text that are the first of a stop."""
    return next(n for n in range(min(len(stop) - 1, len(text)), -1, -1) if text.endswith(stop[:n]))


@dataclass(frozen=True, slots=True)
class TokenText:
    """`spelled` has a replacement mark where the token is a part of a character; `raw` None: its bytes are unknown."""

    spelled: str
    raw: bytes | None


class TokenTexts:
    """The texts of tokens by themselves, each worked out once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._special = {*encoder.added.values()}
        # Some tokenizers drop the space of the first token of a text: each is read behind another.
        self._before = encoder.encode(["a"])
        self._num_before = len(encoder.decode(self._before))
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token: int) -> TokenText:
        if token not in self._known:
            spelled = self._encoder.decode([*self._before, token])[self._num_before :]
            raw = self._raw(token) if UNFINISHED in spelled else spelled.encode()
            self._known[token] = TokenText(spelled, raw)
        return self._known[token]

    def is_special(self, token: int) -> bool:
        """True if it is of the added vocabulary: a mark, and no text."""
        return token in self._special

    def _raw(self, token: int) -> bytes | None:
        name = self._encoder.tokenizer.backend_tokenizer.id_to_token(token) or ""
        if name.startswith("<0x") and name.endswith(">"):
            return bytes.fromhex(name[3:-1])
        return bytes(_BYTES[letter] for letter in name) if {*name} <= _BYTES.keys() else None


def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes: those that can be printed as themselves."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_letters()
