"""Grammars that samples keep to, by llguidance: the tokens that may come next, and where a grammar is over.

Legend: V vocabulary, W words of 32 bits, one bit for each token.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.model.base_model import BaseModel
from cookhouse.errors import InputError

_MAX_KEPT = 64
"""Grammars that are kept built: a group of requests has one, and building takes up to a second."""
_MAX_LETTERS = 2**18
_WORD_BITS = 32


class Grammars:
    """Grammars over the tokens of one base model."""

    def __init__(self, base: BaseModel) -> None:
        self._base = base
        self._tokens: Any = None
        self._built: OrderedDict[str, Any] = OrderedDict()
        """Matchers before their first token, used last at the end."""

    def begin(self, grammar: str, ends: Collection[int]) -> "Constraint":
        """The start of a grammar, after which any of `ends` may follow.

        Raises:
            InputError: it is none, or too large, or the tokenizer's tokens cannot be read.
        """
        if grammar not in self._built:
            self._built[grammar] = self._build(grammar)
        self._built.move_to_end(grammar)
        while len(self._built) > _MAX_KEPT:
            self._built.popitem(last=False)
        return Constraint(self._built[grammar].deep_copy(), np.array(sorted(ends)))

    def _build(self, grammar: str) -> Any:
        from llguidance import LLMatcher

        if len(grammar) > _MAX_LETTERS:
            raise InputError(f"the grammar has {len(grammar)} letters; at most {_MAX_LETTERS} are taken: simplify it")
        if self._tokens is None:
            self._tokens = self._read_tokens()
        matcher = LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            raise InputError(f"the grammar cannot be used: {_first_line(matcher.get_error())}")
        return matcher

    def _read_tokens(self) -> Any:
        from llguidance.hf import from_tokenizer

        # Of the tokens that end a text one is enough here: `Constraint` allows all of them where one may come.
        end = next(iter(sorted(self._base.end_tokens)), None)
        try:
            return from_tokenizer(self._base.tokenizer, n_vocab=self._base.head.vocab_size, eos_token=end)
        except ValueError as error:
            raise InputError(
                f"answers of {self._base.name} cannot be constrained: the tokens of its tokenizer cannot be read "
                f"({error}); ask without a grammar"
            ) from error


class Constraint:
    """One sample's place in its grammar."""

    def __init__(self, matcher: Any, ends: NDArray[np.int64]) -> None:
        self._matcher = matcher
        self._ends = ends

    @property
    def is_over(self) -> bool:
        """True if nothing more may follow."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> "Constraint":
        """The same place, for another sample."""
        return Constraint(self._matcher.deep_copy(), self._ends)

    def allow(self, words_W: NDArray[np.int32]) -> None:
        """Write the bits of the tokens that may come next."""
        self._matcher.unsafe_compute_mask_ptr(words_W.ctypes.data, words_W.nbytes)
        self._check()
        if self._matcher.is_accepting():
            np.bitwise_or.at(words_W.view(np.uint32), self._ends // _WORD_BITS, _bits(self._ends))
        if not words_W.any():
            raise InputError("no token of the model's may follow in the grammar; write it in letters that it has")

    def take(self, token: int) -> None:
        """Go on behind a token that was allowed, and does not end the text."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            said = _first_line(self._matcher.get_error())
            raise InputError(f"the grammar is too much to follow: {said}; simplify it")


def _first_line(said: str) -> str:
    """What is said of a grammar, without the grammar."""
    return said.partition("\n")[0]


def _bits(tokens: NDArray[np.int64]) -> NDArray[np.uint32]:
    return np.uint32(1) << (tokens % _WORD_BITS).astype(np.uint32)


def num_words(vocab_size: int) -> int:
    """Words that have a bit for each token."""
    return -(-vocab_size // _WORD_BITS)
