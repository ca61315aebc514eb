"""Tokens as a page shows them: each with its text, so that all texts together are the whole text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cookhouse.chat import Encoder


class ShownTokens:
    """Gives tokens their texts as they come. A character of several tokens stands at the last of them."""

    def __init__(self, encoder: "Encoder") -> None:
        from cookhouse.chat import GrowingText

        self._encoder = encoder
        self._special = {*encoder.added.values()}
        self._growing = GrowingText(encoder)
        self._num_given = 0
        self.text = ""
        """Of all that are not special."""

    def feed(self, tokens: Sequence[int], logprobs: Sequence[float] | None = None) -> list[dict[str, Any]]:
        """The next tokens as plain values."""
        given = logprobs if logprobs is not None else [None] * len(tokens)
        return [self._shown(int(token), logprob) for token, logprob in zip(tokens, given, strict=True)]

    def _shown(self, token: int, logprob: float | None) -> dict[str, Any]:
        from cookhouse.chat import UNFINISHED, GrowingText

        is_special = token in self._special
        if is_special:
            text = self._encoder.decode([token])
            self._growing, self._num_given = GrowingText(self._encoder), 0
        else:
            self._growing.add(token)
            whole = self._growing.text
            text = "" if whole.endswith(UNFINISHED) else whole[self._num_given :]
            self._num_given += len(text)
            self.text += text
        return {
            "id": token,
            "text": text,
            "is_special": is_special,
            "logprob": None if logprob is None else round(float(logprob), 4),
        }
