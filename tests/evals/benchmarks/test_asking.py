"""How items are asked: each with a seed of its own, of what it says itself, whatever else is asked."""

from collections.abc import Sequence

import pytest

from cookhouse.chat import Message, text_of
from cookhouse.evals import (
    Asking,
    AttemptLog,
    Benchmark,
    BenchmarkItem,
    Draw,
    Grade,
    LoadedBenchmark,
    SampledAnswer,
    ask_benchmark,
)

pytestmark = pytest.mark.anyio


async def is_echo(answer: str) -> Grade:
    return Grade(correct=float(answer.startswith("said ")))


def loaded(places: Sequence[int]) -> LoadedBenchmark:
    items = {
        place: BenchmarkItem(messages=[{"role": "user", "content": f"item {place}"}], expected="", grade=is_echo)
        for place in places
    }
    return LoadedBenchmark(
        benchmark=Benchmark(name="echo", source="nowhere.jsonl", parse=lambda _: None, max_tokens=11),
        items=items,
        num_all=10,
    )


async def drawn(places: Sequence[int], asking: Asking) -> dict[str, Draw]:
    """How each item was asked, by its text."""
    draws: dict[str, Draw] = {}

    async def answer(messages: Sequence[Message], draw: Draw) -> Sequence[SampledAnswer]:
        draws[text_of(messages[-1])] = draw
        return [SampledAnswer(text=f"said {n}") for n in range(draw.num_samples)]

    await ask_benchmark(loaded(places), answer, asking, AttemptLog())
    return draws


async def test_each_item_has_a_seed_of_its_own_whatever_else_is_asked() -> None:
    # Catches one seed for all items, whose luck would then be the same, and seeds by the order of asking.
    all_of_them = await drawn(range(10), Asking(seed=3))
    assert len({draw.seed for draw in all_of_them.values()}) == 10
    some = await drawn([7, 2], Asking(seed=3, max_concurrent=1))
    assert some == {name: all_of_them[name] for name in ("item 7", "item 2")}
    other = await drawn(range(10), Asking(seed=4))
    assert not {draw.seed for draw in other.values()} & {draw.seed for draw in all_of_them.values()}
