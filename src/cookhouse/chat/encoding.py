"""Text to tokens, with the line between what a renderer writes and what a message says drawn once."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, TypeAlias, cast, overload

import tokenizers
from tinker import ModelInput
from tinker.types import EncodedTextChunk, ImageChunk, ModelInputChunk

from cookhouse.chat.words import WordEncoder
from cookhouse.errors import InputError

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


_CACHED_TEXTS = 4096
"""Headers repeat in every conversation, and a conversation rendered turn by turn repeats all its texts."""


class Tokenizer(Protocol):
    """Part of a `transformers` tokenizer that rendering needs."""

    @property
    def name_or_path(self) -> str: ...
    @property
    def backend_tokenizer(self) -> Any: ...
    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...
    @property
    def all_special_ids(self) -> list[int]: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def eos_token_id(self) -> int | None: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool) -> str | list[str]: ...


class Special(str):
    """A piece that is one token of the tokenizer's added vocabulary, not text."""

    __slots__ = ()


Piece = Special | str
Token: TypeAlias = int | ImageChunk
"""Of a sequence that a model reads; an image stands for as many tokens as it has."""


class Encoder:
    """Encodes pieces: a `Special` becomes its one token, everything else plain text, in which no mark can be spelled.

    Plain text has the tokens that the model's own tokenizer gives, added ones included, but for the names of marks,
    which stay letters: special tokens, and those that the format writes. `split_special_tokens=True` would not do: it
    leaves what is added but not flagged special (Qwen's `<think>`, `<tool_call>`) to be matched in text, so that a user
    could forge it.

    Raises:
        InputError: the tokenizer has no `tokenizers` backend.
    """

    def __init__(self, tokenizer: Tokenizer, written: Collection[str] = ()) -> None:
        """`written` are the tokens that the chat format writes, those that the tokenizer lacks among them."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise InputError(f"{tokenizer.name_or_path}: rendering needs a fast tokenizer (a tokenizer.json)")
        self.tokenizer = tokenizer
        plain = plain_tokenizer(backend)
        self._plain = WordEncoder(plain)
        added = tokenizer.added_tokens_decoder
        self.added = {str(token): token_id for token_id, token in added.items()}
        """Ids of the added vocabulary by name."""
        self.num_embeddings: int | None = None
        """Of the model, which takes no token behind them; None: not known."""
        of_format = {*written}
        marks = special_names(tokenizer) | of_format
        self.marks = {name: i for name, i in self.added.items() if name in marks}
        """Ids of the tokens that text cannot spell, by name."""
        names = sorted(filter(is_a_name, self.marks), key=len, reverse=True)
        self.mark_names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        """Matches the name of a mark in text, where it is letters."""
        spelled = {*self.marks.values()}
        self._added = AddedTokens(plain, {i: token for i, token in added.items() if i not in spelled})
        self._cache: dict[str, list[int]] = {}

    def has(self, token: str) -> bool:
        """True if the tokenizer has this added token."""
        return token in self.added

    def id_of(self, token: str) -> int:
        """The id of an added token. Raises `InputError` if the tokenizer lacks it."""
        if token not in self.added:
            raise InputError(
                f"tokenizer {self.tokenizer.name_or_path!r} has no token {token!r}, which this renderer writes; "
                "choose a renderer of the model's own family"
            )
        self._check([self.added[token]])
        return self.added[token]

    @overload
    def encode(self, pieces: Sequence[Piece]) -> list[int]: ...
    @overload
    def encode(self, pieces: Sequence[Piece | ImageChunk]) -> Sequence[Token]: ...
    def encode(self, pieces: Sequence[Piece | ImageChunk]) -> Sequence[Token]:
        """Tokens of the pieces; neighboring texts are joined before they are encoded."""
        tokens: list[Token] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, str) and not isinstance(piece, Special):
                text += piece
                continue
            if text:
                tokens += self._encode_text(text)
                text = ""
            tokens.append(self._id_of_mark(piece) if isinstance(piece, Special) else piece)
        if text:
            tokens += self._encode_text(text)
        return tokens

    def encode_with_specials(self, text: str) -> list[int]:
        """Tokens of text that the program itself wrote: the names of special tokens in it become those tokens."""
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        self._check(tokens)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones spelled out."""
        return str(self.tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))

    def split(self, tokens: Sequence[int], marks: Mapping[int, Special]) -> list[Piece]:
        """The marks among the tokens, and the text between them; any other special token is spelled out in that."""
        pieces: list[Piece] = []
        start = 0
        for position, token in enumerate(tokens):
            if token in marks:
                if position > start:
                    pieces.append(self.decode(tokens[start:position]))
                pieces.append(marks[token])
                start = position + 1
        if start < len(tokens):
            pieces.append(self.decode(tokens[start:]))
        return pieces

    def _check(self, tokens: Sequence[int]) -> None:
        """Refuse what the model has no embedding of."""
        if self.num_embeddings is not None and tokens and max(tokens) >= self.num_embeddings:
            token = max(tokens)
            raise InputError(
                f"token {token} ({self.decode([token])!r}) of the tokenizer {self.tokenizer.name_or_path!r} is beyond "
                f"the model's {self.num_embeddings:,} embeddings; put the model's own tokenizer in its folder, or "
                "give the model more (transformers: model.resize_token_embeddings(len(tokenizer)))"
            )

    def _id_of_mark(self, mark: Special) -> int:
        token = self.marks.get(mark)
        if token is not None:
            self._check([token])
            return token
        self.id_of(mark)
        raise InputError(
            f"a renderer writes {str(mark)!r} and does not name it, so that text could spell it; add it to its marks, "
            "optional_marks or written_marks"
        )

    def _encode_text(self, text: str) -> list[int]:
        tokens = self._cache.get(text)
        if tokens is None:
            tokens = self._added.encode(text)
            if tokens is None:
                tokens = self._plain.encode(text)
            self._check(tokens)
            if len(self._cache) >= _CACHED_TEXTS:
                self._cache.clear()
            self._cache[text] = tokens
        return tokens


def is_a_name(token: str) -> bool:
    """True if an added token can be the name of a mark: runs of white space are tokens of some vocabularies."""
    return len(token) > 1 and bool(token.strip(" \t\n▁"))


def special_names(tokenizer: Tokenizer) -> frozenset[str]:
    """Names of the tokens that a tokenizer says are special."""
    special = {*tokenizer.all_special_ids}
    return frozenset(str(token) for i, token in tokenizer.added_tokens_decoder.items() if token.special or i in special)


def to_model_input(tokens: Sequence[Token]) -> ModelInput:
    """Model input to send for a sequence: runs of tokens, and images between them."""
    if not has_images(tokens):
        return ModelInput.from_ints(cast("list[int]", tokens))
    chunks: list[ModelInputChunk] = []
    for is_text, group in groupby(tokens, lambda token: isinstance(token, int)):
        run = list(group)
        chunks += [EncodedTextChunk(tokens=cast("list[int]", run))] if is_text else cast("list[ImageChunk]", run)
    return ModelInput(chunks=chunks)


def has_images(tokens: Sequence[Token]) -> bool:
    """True if a sequence is more than text."""
    return not {*map(type, tokens)} <= {int}
