"""A look at examples before training: which tokens are trained stands out from which are not."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.text import Text

from cookhouse.chat import Tokenizer
from cookhouse.data import Example
from cookhouse.printable import printable

_TRAINED_STYLE = "bold green"
_UNTRAINED_STYLE = "dim"
_OPEN, _CLOSE = "⟦", "⟧"


def preview_pieces(tokens: Sequence[int], weights: Sequence[float], tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """Text of runs of tokens, each with whether it is trained; special tokens spelled out, control characters too."""
    runs = groupby(zip(tokens, weights, strict=True), key=lambda pair: pair[1] != 0)
    return [(_decode([token for token, _ in run], tokenizer), is_trained) for is_trained, run in runs]


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


def _decode(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    return printable(str(tokenizer.decode(tokens, clean_up_tokenization_spaces=False)), keep="\n\t")
