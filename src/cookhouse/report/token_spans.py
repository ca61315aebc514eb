"""Tokens with their numbers as spans that a page shows: text, classes, and the exact values in words."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cookhouse.errors import printable
from cookhouse.report.token_colors import ColorScale, Quantity, Values, scale_of


class TextOfToken(Protocol):
    """Text of a token by a decoder, or of several that only together are whole characters."""

    @property
    def start(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Wording:
    """Texts of a model's tokens."""

    texts: Callable[[Sequence[int], Sequence[int]], Iterable[TextOfToken]]
    """Of tokens behind others."""
    special: Collection[int] = frozenset()
    """Ids of the added vocabulary."""


@dataclass(frozen=True, kw_only=True)
class TokenSpan:
    """One token; or those that only together are whole characters."""

    text: str
    position: int
    """Of its first token in the sequence."""
    ids: Sequence[int]
    is_special: bool
    values: Mapping[Quantity, Sequence[float | None]]
    """Of each of its tokens."""

    def classes(self, scales: Mapping[Quantity, ColorScale]) -> str:
        """For the page. Several tokens have the color of the one furthest from 0."""
        shades = [scale.css_class(_strongest(self.values.get(name, ()))) for name, scale in scales.items()]
        weights = self.values.get(Quantity.WEIGHT)
        is_untrained = weights is not None and not any(weights)
        kinds = ["special"] * self.is_special + ["untrained"] * is_untrained
        return " ".join(filter(None, ["token", *kinds, *shades]))

    @property
    def told(self) -> str:
        """Position, id and every value, for whoever points at it or has come to it by keyboard."""
        where = f"token {self.position}" + (f" to {self.position + len(self.ids) - 1}" if len(self.ids) > 1 else "")
        ids = f"id {', '.join(map(str, self.ids))}"
        return " · ".join([where, ids, *(f"{name} {_texts(each)}" for name, each in self.values.items())])


@dataclass(frozen=True, kw_only=True)
class TokenRun:
    """Neighboring tokens with what is known of each."""

    tokens: Sequence[int | None]
    """None stands for a piece of an image."""
    values: Mapping[Quantity, Values] = field(default_factory=dict)
    """As long as `tokens` each; only of quantities that are known."""
    start: int = 0
    """Position of the first in its sequence."""
    before: Sequence[int] = ()
    """What stands before it: some tokenizers need that for the first space."""


def token_spans(run: TokenRun, wording: Wording | None) -> list[TokenSpan]:
    """The spans of a run; without a wording each token is shown as its id."""
    spans = []
    for start, end, text in _pieces(run, wording):
        ids = [token for token in run.tokens[start:end] if token is not None]
        is_special = wording is not None and any(token in wording.special for token in ids)
        spans.append(
            TokenSpan(
                text=printable(text, keep="\n\t") or f"⟨{' '.join(map(str, ids))}⟩",
                position=run.start + start,
                ids=ids,
                is_special=is_special or not ids,
                values={name: each[start:end] for name, each in run.values.items()},
            )
        )
    return spans


def scales_of(runs: Iterable[TokenRun]) -> dict[Quantity, ColorScale]:
    """One scale for each quantity that some token of a page has."""
    several = list(runs)
    found = {
        name: scale_of(name, (value for run in several for value in run.values.get(name, ()))) for name in Quantity
    }
    return {name: scale for name, scale in found.items() if scale is not None}


def _pieces(run: TokenRun, wording: Wording | None) -> Iterable[tuple[int, int, str]]:
    """Start, end and text of each span."""
    start = 0
    before = list(run.before)
    while start < len(run.tokens):
        if run.tokens[start] is None:
            end = start + 1
            while end < len(run.tokens) and run.tokens[end] is None:
                end += 1
            yield start, end, f"[image, {end - start} tokens]"
            start, before = end, []
            continue
        ids: list[int] = []
        for token in run.tokens[start:]:
            if token is None:
                break
            ids.append(token)
        if wording is None:
            yield from ((start + index, start + index + 1, f"{token} ") for index, token in enumerate(ids))
        else:
            for each in wording.texts(ids, before):
                yield start + each.start, start + each.start + each.num_tokens, each.text
        start, before = start + len(ids), ids[-1:]


def _strongest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), key=abs, default=None)


def _texts(values: Sequence[float | None]) -> str:
    return ", ".join("-" if value is None else f"{value:.6g}" for value in values)
