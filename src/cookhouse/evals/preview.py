"""A look at examples before training: which tokens are trained stands out from which are not."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.text import Text

from cookhouse.chat import Tokenizer, is_a_name
from cookhouse.data import Example
from cookhouse.errors import printable

_TRAINED_STYLE = "bold green"
_UNTRAINED_STYLE = "dim"
_OPEN, _CLOSE = "⟦", "⟧"
_DOT = "·"


def preview_pieces(tokens: Sequence[int], weights: Sequence[float], tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """Text of runs of tokens, each with whether it is trained; special tokens spelled out, control characters too.
    Letters that spell such a token have a dot in them: `<·|im_end|>`.
    """
    names = _Names(tokenizer)
    runs = groupby(zip(tokens, weights, strict=True), key=lambda pair: pair[1] != 0)
    return [(names.spelled([token for token, _ in run]), is_trained) for is_trained, run in runs]


def preview_example(example: Example, tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """`preview_pieces` of an example, with a word for each image."""
    tokens, weights = example.tokens_T.tolist(), example.weights_T.tolist()
    pieces = []
    start = 0
    for image in example.images:
        pieces += preview_pieces(tokens[start : image.position], weights[start : image.position], tokenizer)
        pieces.append((f"[image, {image.chunk.length} tokens]", False))
        start = image.end
    return [*pieces, *preview_pieces(tokens[start:], weights[start:], tokenizer)]


def preview_rich(pieces: Iterable[tuple[str, bool]]) -> Text:
    """For a terminal: trained text bold green, the rest dim."""
    text = Text()
    for piece, is_trained in pieces:
        text.append(piece, style=_TRAINED_STYLE if is_trained else _UNTRAINED_STYLE)
    return text


def preview_plain(pieces: Iterable[tuple[str, bool]]) -> str:
    """For a file or a pipe: trained text between ⟦ and ⟧."""
    return "".join(f"{_OPEN}{piece}{_CLOSE}" if is_trained else piece for piece, is_trained in pieces)


class _Names:
    """Tells the names of marks from letters that spell them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._marks = {i: name for i, token in tokenizer.added_tokens_decoder.items() if is_a_name(name := str(token))}
        by_length = sorted(self._marks.values(), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, by_length)) or r"(?!)")

    def spelled(self, tokens: Sequence[int]) -> str:
        """The text of tokens; a name that is letters has a dot in it."""
        text = self._decode(tokens)
        if len(self._names.findall(text)) > sum(token in self._marks for token in tokens):
            runs = [(mark, self._decode(list(run))) for mark, run in groupby(tokens, key=self._marks.get)]
            text = "".join(self._names.sub(_dotted, said) if mark is None else said for mark, said in runs)
        return printable(text, keep="\n\t")

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))


def _dotted(match: re.Match[str]) -> str:
    return f"{match[0][0]}{_DOT}{match[0][1:]}"
