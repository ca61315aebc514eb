"""Plain text in which tokens stand that were added to a vocabulary and are no marks: runs of spaces, tags, words."""

import re
from collections.abc import Mapping
from typing import Any

import tokenizers


class AddedTokens:
    """Encodes text as the whole tokenizer does, with those of its added tokens that text may spell."""

    def __init__(self, plain: tokenizers.Tokenizer, tokens: Mapping[int, Any]) -> None:
        """`plain` has the model and no added vocabulary; `tokens` are `tokenizers.AddedToken` by id."""
        self._plain = plain
        self._ids = {str(token): token_id for token_id, token in tokens.items()}
        self._whole: tokenizers.Tokenizer | None = None
        self._names = _any_of(self._ids)
        self._normalizer = None
        if tokens:
            self._whole = _with_tokens(plain, tokens)
            if plain.normalizer is not None and any(token.normalized for token in tokens.values()):
                self._normalizer = plain.normalizer
                self._normalized_names = _any_of({plain.normalizer.normalize_str(name) for name in self._ids})

    def encode(self, text: str) -> list[int] | None:
        """The tokens of a text that spells some of the added ones; None: it spells none."""
        if self._whole is None or not self._are_in(text):
            return None
        encoding = self._whole.encode(text, add_special_tokens=False)
        # This tokenizer counts added tokens on from the end of its model's vocabulary: by name they are who they are.
        return [self._ids.get(token, i) for token, i in zip(encoding.tokens, encoding.ids, strict=True)]

    def _are_in(self, text: str) -> bool:
        if self._names.search(text):
            return True
        if self._normalizer is None:
            return False
        return self._normalized_names.search(self._normalizer.normalize_str(text)) is not None


def plain_tokenizer(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer of the same model, normalizer and pre-tokenizer, without added vocabulary; takes microseconds."""
    plain = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = backend.pre_tokenizer
    return plain


def _with_tokens(plain: tokenizers.Tokenizer, tokens: Mapping[int, Any]) -> tokenizers.Tokenizer:
    whole = plain_tokenizer(plain)
    whole.add_tokens(list(tokens.values()))
    return whole


def _any_of(names: Any) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(filter(None, names), key=len, reverse=True))) or r"(?!)")
