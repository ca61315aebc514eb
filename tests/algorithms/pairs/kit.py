"""Pairs over the embedded tokenizer, in its plain chat format."""

from collections.abc import Sequence

from cookhouse.algorithms.pairs.dataset import Pair, render_pairs
from cookhouse.chat import Renderer, get_renderer
from cookhouse.data import PreferenceRow
from cookhouse.models.tokenizers import get_tokenizer


def renderer(name: str = "human_ai") -> Renderer:
    return get_renderer(name, get_tokenizer("cookhouse/tiny"))


def row(prompt: str, chosen: str, rejected: str, source: str = "pairs.jsonl:1") -> PreferenceRow:
    return PreferenceRow(
        prompt=[{"role": "user", "content": prompt}],
        chosen=[{"role": "assistant", "content": chosen}],
        rejected=[{"role": "assistant", "content": rejected}],
        source=source,
    )


def rows(count: int) -> list[PreferenceRow]:
    return [row(f"say {n}", f"{n} is said", f"no {n}", f"pairs.jsonl:{n + 1}") for n in range(count)]


def pairs(count: int, max_length: int = 100) -> list[Pair]:
    return render_pairs(rows(count), renderer(), max_length=max_length)


def text(tokens: Sequence[int]) -> str:
    return str(get_tokenizer("cookhouse/tiny").decode(list(tokens)))
