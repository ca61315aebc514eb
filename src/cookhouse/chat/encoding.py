"""Text to tokens, with the line between what a renderer writes and what a message says drawn once."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeAlias, cast, overload

import tokenizers
from tinker import ModelInput
from tinker.types import EncodedTextChunk, ImageChunk, ModelInputChunk

from cookhouse.chat.words import WordEncoder
from cookhouse.errors import InputError

_CACHED_TEXTS = 4096
"""Headers repeat in every conversation, and a conversation rendered turn by turn repeats all its texts."""


class Tokenizer(Protocol):
    """What rendering needs of a `transformers` tokenizer."""

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
    """Encodes pieces: a `Special` becomes its one token, everything else plain text whatever it spells.

    Plain text goes through a second tokenizer made of the same model, normalizer and pre-tokenizer and no added
    vocabulary at all. `split_special_tokens=True` would not do: it leaves tokens that are added but not flagged special
    (Qwen's `<think>`, `<tool_call>`, `<tool_response>`) to be matched in text, so that a user could forge them.

    Raises:
        InputError: the tokenizer has no `tokenizers` backend.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise InputError(f"{tokenizer.name_or_path}: rendering needs a fast tokenizer (a tokenizer.json)")
        self.tokenizer = tokenizer
        plain = tokenizers.Tokenizer(backend.model)  # shares the vocabulary, costs microseconds
        if backend.normalizer is not None:
            plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            plain.pre_tokenizer = backend.pre_tokenizer
        self._plain = WordEncoder(plain)
        self.added = {str(token): token_id for token_id, token in tokenizer.added_tokens_decoder.items()}
        """Ids of the added vocabulary by name."""
        self.num_embeddings: int | None = None
        """Of the model, which takes no token behind them; None: not known."""
        self._cache: dict[str, list[int]] = {}

    def has(self, token: str) -> bool:
        """Whether the tokenizer has this added token."""
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
            tokens.append(self.id_of(piece) if isinstance(piece, Special) else piece)
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
                "extend the embeddings"
            )

    def _encode_text(self, text: str) -> list[int]:
        tokens = self._cache.get(text)
        if tokens is None:
            tokens = self._plain.encode(text)
            self._check(tokens)
            if len(self._cache) >= _CACHED_TEXTS:
                self._cache.clear()
            self._cache[text] = tokens
        return tokens


def to_model_input(tokens: Sequence[Token]) -> ModelInput:
    """What is sent for a sequence: runs of tokens, and images between them."""
    if not has_images(tokens):
        return ModelInput.from_ints(cast("list[int]", tokens))
    chunks: list[ModelInputChunk] = []
    for is_text, group in groupby(tokens, lambda token: isinstance(token, int)):
        run = list(group)
        chunks += [EncodedTextChunk(tokens=cast("list[int]", run))] if is_text else cast("list[ImageChunk]", run)
    return ModelInput(chunks=chunks)


def has_images(tokens: Sequence[Token]) -> bool:
    """Whether a sequence is more than text."""
    return not {*map(type, tokens)} <= {int}
