"""Texts of a run's tokens, by the tokenizer of its model, as far as it is on this machine."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report.token_spans import Wording

_LARGEST_ID = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Words:
    """Reader of a model's tokens; without a tokenizer, the reason why there is none."""

    wording: Wording | None = None
    problem: str = ""
    backend: Any = None

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; their ids where there is no tokenizer."""
        if self.backend is None:
            return " ".join(map(str, tokens))
        return str(self.backend.decode(_possible(tokens), skip_special_tokens=False))

    def decode_batch(self, several: Sequence[Sequence[int]]) -> list[str]:
        """The same of several sequences, at once."""
        if self.backend is None:
            return list(map(self.decode, several))
        return list(self.backend.decode_batch(list(map(_possible, several)), skip_special_tokens=False))


class Wordings:
    """The words of each model, loaded once in a process."""

    def __init__(self) -> None:
        self._known: dict[str, Words] = {}
        self._lock = threading.Lock()

    def of(self, record: Mapping[str, Any]) -> Words:
        """Words of the model of a run by its record (config.json). Blocks while a tokenizer is loaded: seconds."""
        settings = record.get("config")
        model = settings.get("model_name") if isinstance(settings, dict) else None
        if not isinstance(model, str):
            return Words(problem="the record of the run names no model, so tokens are shown as ids")
        with self._lock:
            if model not in self._known:
                self._known[model] = _load(model)
            return self._known[model]


def _load(model: str) -> Words:
    from cookhouse.chat.token_texts import TokenTexts  # loads the SDK
    from cookhouse.models.tokenizers import get_tokenizer  # loads transformers

    try:
        tokenizer: Any = get_tokenizer(model, download=False)
    except InputError as error:
        return Words(problem=f"tokens are shown as ids: {error}")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return Words(problem=f"tokens are shown as ids: {model} has no fast tokenizer (a tokenizer.json)")
    words = Words(backend=backend)
    return Words(
        backend=backend,
        wording=Wording(texts=TokenTexts(words.decode), special=frozenset(tokenizer.added_tokens_decoder)),
    )


def _possible(tokens: Sequence[int]) -> list[int]:
    """Without what no vocabulary can have."""
    return [token for token in tokens if 0 <= token < _LARGEST_ID]
