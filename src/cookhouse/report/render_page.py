"""The page of rendered conversations: every token, and its weight."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.pages import document


@dataclass(frozen=True, kw_only=True)
class RenderedToken:
    position: int
    id: int
    text: str
    weight: float
    is_special: bool


@dataclass(frozen=True, kw_only=True)
class RenderedExample:
    """One training example of a conversation."""

    title: str
    tokens: Sequence[RenderedToken]

    @property
    def num_trained(self) -> int:
        return sum(token.weight != 0 for token in self.tokens)


def render_page(examples: Sequence[RenderedExample], *, title: str) -> str:
    """One self-contained page; all text is escaped, control characters are spelled out, and no script can run."""
    return document("render.html", title=title, examples=examples)
