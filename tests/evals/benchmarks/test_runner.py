"""How items are asked: each once, with a seed of its own, whatever else is asked, until somebody says stop."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cookhouse.chat import Message, text_of
from cookhouse.evals import (
    AnswerOptions,
    AttemptLog,
    Benchmark,
    BenchmarkItem,
    Grade,
    LoadedBenchmark,
    SampledAnswer,
    ask_benchmark,
)
from cookhouse.evals.benchmarks.answerers import AnswerSampling

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


async def drawn(places: Sequence[int], options: AnswerOptions) -> dict[str, AnswerSampling]:
    """How each item was asked, by its text."""
    draws: dict[str, AnswerSampling] = {}

    async def answer(messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        draws[text_of(messages[-1])] = draw
        return [SampledAnswer(text=f"said {n}") for n in range(draw.num_samples)]

    await ask_benchmark(loaded(places), answer, options, AttemptLog())
    return draws


async def test_each_item_has_a_seed_of_its_own_whatever_else_is_asked() -> None:
    # Catches one seed for all items, whose luck would then be the same, and seeds by the order of requests.
    all_of_them = await drawn(range(10), AnswerOptions(seed=3))
    assert len({draw.seed for draw in all_of_them.values()}) == 10
    some = await drawn([7, 2], AnswerOptions(seed=3, max_concurrent=1))
    assert some == {name: all_of_them[name] for name in ("item 7", "item 2")}
    other = await drawn(range(10), AnswerOptions(seed=4))
    assert not {draw.seed for draw in other.values()} & {draw.seed for draw in all_of_them.values()}


async def test_what_is_answered_or_graded_is_left_alone() -> None:
    # Catches a resumed evaluation that runs the programs of all graded answers again, and counts them twice.
    asked, graded, done = [], [], []

    async def answer(messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        del draw
        asked.append(text_of(messages[-1]))
        return [SampledAnswer(text="said it")]

    async def grade(answer: str) -> Grade:
        graded.append(answer)
        return Grade(correct=1.0)

    items = {place: replace(item, grade=grade) for place, item in loaded(range(3)).items.items()}
    log = AttemptLog()
    log.add_answers(("echo", 0), [SampledAnswer(text="said before")])
    log.add_grades(("echo", 0), [Grade(correct=0.0)])
    log.add_answers(("echo", 1), [SampledAnswer(text="not graded yet")])
    await ask_benchmark(replace(loaded([]), items=items), answer, AnswerOptions(), log, on_done=lambda: done.append(1))
    assert asked == ["item 2"]
    assert sorted(graded) == ["not graded yet", "said it"]
    assert len(done) == 2
    assert [attempt.correct for attempt in log.attempts("echo")] == [0.0, 1.0, 1.0]


async def test_nothing_more_is_asked_once_it_is_stopped() -> None:
    # Catches Ctrl-C that is heard when all items have been asked.
    asked: list[str] = []

    async def answer(messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        del draw
        asked.append(text_of(messages[-1]))
        return [SampledAnswer(text="said it")]

    log = AttemptLog()
    options = AnswerOptions(max_concurrent=1)
    await ask_benchmark(loaded(range(10)), answer, options, log, is_stopped=lambda: len(asked) >= 3)
    assert len(asked) == len(log.attempts("echo")) == 3


async def test_what_is_asked_is_what_the_evaluation_says() -> None:
    [plain] = (await drawn([0], AnswerOptions())).values()
    assert (plain.max_tokens, plain.temperature, plain.num_samples) == (11, 0.0, 1)
    [given] = (await drawn([0], AnswerOptions(max_tokens=5, temperature=0.7, num_samples=3))).values()
    assert (given.max_tokens, given.temperature, given.num_samples) == (5, 0.7, 3)
