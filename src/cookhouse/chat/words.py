"""Plain text to tokens, fast, by the words that it is made of."""

import re
from collections.abc import Sequence
from functools import cache, partial
from itertools import chain, product
from string import ascii_lowercase, ascii_uppercase

import tokenizers

_MAX_WORDS = 100_000
_MAX_WORD_LENGTH = 40
"""Longer ones hardly ever come again."""
_SPACE = re.compile(r"(?<=\S) (?=\S)")
_SIDES = ("a", "Z", "é", "京", "ع", "👩", "9", "½", "'", ".", "(", "$", "_", "/", "{", "\u0301", "\u200d", "\ufe0f")
"""Of every kind of character that a pattern of words distinguishes."""
_PUNCTUATION = '.,?!:;)"'
_LETTERS = re.compile(rf"([A-Z]?[a-z]+|[A-Z]+)(?:([{_PUNCTUATION}]*)|([{_PUNCTUATION}]*\n+)(\S.*))", re.DOTALL)
"""Letters, and punctuation after them; that ends the word, or a line before the rest of it."""
_SPACE_LETTER = "Ġ"
"""A space, as byte-level models spell it."""


class WordEncoder:
    """Encodes plain text as its tokenizer does, and remembers words.

    The pre-tokenizers of byte-level vocabularies never join what stands on both sides of a single space, and the space
    goes with what follows it: the tokens of a text are those of its words, one after the other. Within a word, letters
    are apart from the punctuation after them, and a line from the next. Whether a tokenizer is so is tried when its
    encoder is made; if not, words, or texts, are encoded as a whole.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._model = tokenizer.model
        self._splits = _splits_at_spaces(tokenizer)
        self._splits_words = self._splits and _splits_at_letters(tokenizer)
        self._first: dict[str, list[int]] = {}
        """Tokens of a word at the beginning of a text."""
        self._words: dict[str, list[int]] = {}
        """Tokens of a word after a space, and of that space."""

    def encode(self, text: str) -> list[int]:
        if not self._splits:
            return self._encode(text)
        first, *others = text.split(" ")
        try:  # no remembered word has white space at an end: where all are known, the spaces are single ones
            found = [self._first[first], *map(self._words.__getitem__, others)]
        except KeyError:
            found = self._encode_new(text)
        return [*chain.from_iterable(found)]

    def _encode_new(self, text: str) -> list[list[int]]:
        """Tokens of each word of a text in which some are new, and are remembered."""
        if len(self._words) + len(self._first) > _MAX_WORDS:
            self._words.clear()
            self._first.clear()
        words = text.split(" ")
        if words != text.split():  # several spaces, line breaks or the like
            words = _SPACE.split(text)
        first, *others = words
        known = self._words
        return [
            self._encode_word(first, self._first, ""),
            *[known.get(word) or self._encode_word(word, known, " ") for word in others],
        ]

    def _encode_word(self, word: str, known: dict[str, list[int]], space: str) -> list[int]:
        if word in known:
            return known[word]
        if len(word) > _MAX_WORD_LENGTH:
            return self._encode(space + word)
        match = _LETTERS.fullmatch(word) if self._splits_words else None
        if match is None:
            tokens = self._encode(space + word)
        elif match[1] == word:  # the model alone is several times as fast
            tokens = [token.id for token in self._model.tokenize(_SPACE_LETTER + word if space else word)]
        else:
            letters, *rest = filter(None, match.groups())
            tokens = [*self._encode_word(letters, known, space)]
            for piece in rest:
                tokens += self._encode_word(piece, self._first, "")
        if word == word.strip():
            known[word] = tokens
        return tokens

    def _encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return tokens


def _splits_at_spaces(tokenizer: tokenizers.Tokenizer) -> bool:
    if tokenizer.pre_tokenizer is None:
        return False
    pairs = [(f"x{left}", f"{right}x") for left, right in product(_SIDES, _SIDES)]
    pairs += [(left, right) for left, right in product(_SIDES, _SIDES)]
    return _are_apart(tokenizer, [(left, f" {right}") for left, right in pairs])


def _splits_at_letters(tokenizer: tokenizers.Tokenizer) -> bool:
    words = [ascii_lowercase, ascii_uppercase, *(f"{letter}{ascii_lowercase}" for letter in ascii_uppercase)]
    if _pieces(tokenizer, " ".join(["", *words])) != [_SPACE_LETTER + word for word in words]:
        return False
    if any(_pieces(tokenizer, word) != [word] for word in words):
        return False
    ends = [first + second for first, second in product(_PUNCTUATION, ["", *_PUNCTUATION])]
    lines = [end + line for end, line in product(["", *_PUNCTUATION, '."', '?"'], ["\n", "\n\n", "\n\n\n"])]
    apart: list[tuple[str, ...]] = [(letter, end) for letter, end in product(["x", "X", "Xx"], ends)]
    apart += [("x", line, f"{right}{x}") for line, right, x in product(lines, _SIDES, ["", "x"])]
    return _are_apart(tokenizer, apart)


def _are_apart(tokenizer: tokenizers.Tokenizer, texts: Sequence[tuple[str, ...]]) -> bool:
    """True if the tokenizer takes texts, each of some parts, apart where their parts meet."""
    pieces = cache(partial(_pieces, tokenizer))
    return all(pieces("".join(text)) == [*chain.from_iterable(map(pieces, text))] for text in texts)


def _pieces(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    """Pieces of a text that the model is given, one by one."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
