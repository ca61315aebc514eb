"""Plain text in which tokens stand that were added to a vocabulary and are no marks: runs of spaces, tags, words."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import tokenizers

_NO_TEXT = "\ufdd3gap"
"""Begins with a noncharacter, so that no text has it."""


class AddedTokens:
    """Encodes text as the whole tokenizer does, with those of its added tokens that text may spell."""

    def __init__(self, plain: tokenizers.Tokenizer, tokens: Mapping[int, Any]) -> None:
        """`plain` has the model and no added vocabulary; `tokens` are `tokenizers.AddedToken` by id."""
        self._plain = plain
        self._tokens = tokens
        names = [*map(str, tokens.values())]
        self._names = _any_of(names)
        self._normalizer = None
        if plain.normalizer is not None and any(token.normalized for token in tokens.values()):
            self._normalizer = plain.normalizer
            self._normalized_names = _any_of({plain.normalizer.normalize_str(name) for name in names})

    def encode(self, text: str) -> list[int] | None:
        """The tokens of a text that spells some of the added ones; None: it spells none."""
        if not self._tokens or not self._are_in(text):
            return None
        whole, ids = self._whole
        return [ids.get(i, i) for i in whole.encode(text, add_special_tokens=False).ids]

    @cached_property
    def _whole(self) -> tuple[tokenizers.Tokenizer, Mapping[int, int]]:
        """A tokenizer with the tokens, and the ids that they have by those that it gives them, counting on."""
        whole = plain_tokenizer(self._plain)
        vocabulary = self._plain.get_vocab()
        # It counts on from the size of the vocabulary, and one with gaps has higher ids.
        num_gaps = max(vocabulary.values(), default=-1) + 1 - len(vocabulary)
        whole.add_tokens([tokenizers.AddedToken(f"{_NO_TEXT}{n}", normalized=False) for n in range(num_gaps)])
        whole.add_tokens(list(self._tokens.values()))
        theirs = {str(token): token_id for token_id, token in self._tokens.items()}
        return whole, {i: theirs[name] for name in theirs if (i := whole.token_to_id(name)) is not None}

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


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(filter(None, names), key=len, reverse=True))) or r"(?!)")
