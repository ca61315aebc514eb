"""Figures of attempts, against the plainest computation of the same thing."""

import itertools
import math
import statistics

import pytest

from cookhouse.errors import InputError
from cookhouse.evals import (
    Attempt,
    Benchmark,
    BenchmarkItem,
    Grade,
    LoadedBenchmark,
    Outcome,
    SampledAnswer,
    benchmark_figures,
    paired_difference,
    pass_at_k,
)


async def _grade(answer: str) -> Grade:
    return Grade(correct=float(answer == "yes"))


def _loaded(count: int, groups: list[str | None] | None = None) -> LoadedBenchmark:
    benchmark = Benchmark(name="test", source="nowhere.jsonl", parse=lambda _: None)
    items = {
        place: BenchmarkItem(
            messages=[{"role": "user", "content": "?"}],
            expected="yes",
            grade=_grade,
            group=None if groups is None else groups[place],
        )
        for place in range(count)
    }
    return LoadedBenchmark(benchmark=benchmark, items=items, num_all=count)


def _attempt(place: int, *correct: float | None) -> Attempt:
    """An answer for each number; None is one that failed."""
    return Attempt(
        place=place,
        answers=[SampledAnswer(error="gone") if value is None else SampledAnswer(text="x") for value in correct],
        grades=[Grade(correct=value or 0.0) for value in correct],
    )


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 4), (6, 6, 1), (8, 3, 8), (4, 3, 2)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(n: int, c: int, k: int) -> None:
    """Catches the biased 1 − (1 − c/n)^k."""
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_of_too_few_samples_is_refused(k: int) -> None:
    with pytest.raises(InputError, match=rf"pass@{k} of 4 samples"):
        pass_at_k(4, 1, k)


def test_errors_are_those_of_items_not_of_samples() -> None:
    """Four answers to one item are not four items: the naive error would be half as large, and n four times."""
    attempts = [_attempt(0, 1, 1, 1, 1), _attempt(1, 0, 0, 0, 0), _attempt(2, 1, 1, 0, 0)]
    figures = benchmark_figures(_loaded(3), attempts)
    assert figures["correct"].mean == 0.5
    assert figures["correct"].n == 3
    assert figures["correct"].stderr == pytest.approx(statistics.stdev([1.0, 0.0, 0.5]) / math.sqrt(3))
    assert [name for name in figures if name.startswith("pass@")] == ["pass@1", "pass@2", "pass@4"]
    assert figures["pass@1"].mean == 0.5
    assert figures["pass@2"].mean == pytest.approx((1 + 0 + 5 / 6) / 3)


def test_what_failed_counts_as_not_right() -> None:
    """Catches means over the answered items alone, which an overloaded service would raise."""
    figures = benchmark_figures(_loaded(4), [_attempt(0, 1), _attempt(1, None), _attempt(2, None), _attempt(3, 0)])
    assert (figures["correct"].mean, figures["correct"].n) == (0.25, 4)
    assert figures["failed"].mean == 0.5


def test_an_answer_is_right_wrong_malformed_or_failed() -> None:
    # Catches half of a point that counts as right, and a right answer that counts as malformed since it went on.
    cases = [
        (SampledAnswer(text="x"), Grade(correct=1.0), Outcome.RIGHT),
        (SampledAnswer(text="x", is_cut=True), Grade(correct=1.0, is_well_formed=False), Outcome.RIGHT),
        (SampledAnswer(text="x"), Grade(correct=0.5), Outcome.WRONG),
        (SampledAnswer(text="x", is_cut=True), Grade(correct=0.5), Outcome.MALFORMED),
        (SampledAnswer(text="x"), Grade(correct=0.0, is_well_formed=False), Outcome.MALFORMED),
        (SampledAnswer(error="gone"), Grade(correct=0.0, is_well_formed=False), Outcome.FAILED),
    ]
    answers, grades, outcomes = zip(*cases, strict=True)
    attempt = Attempt(place=0, answers=answers, grades=grades)
    assert tuple(attempt.outcomes) == outcomes
    assert (attempt.num_right, attempt.correct) == (2, 0.5)
    figures = benchmark_figures(_loaded(1), [attempt])
    assert (figures["malformed"].mean, figures["failed"].mean) == (2 / 6, 1 / 6)
    assert figures["pass@1"].mean == pytest.approx(2 / 6)


def test_one_item_has_no_error() -> None:
    assert benchmark_figures(_loaded(1), [_attempt(0, 1)])["correct"].stderr is None


def test_groups() -> None:
    figures = benchmark_figures(_loaded(3, ["a", "b", "a"]), [_attempt(0, 1), _attempt(1, 0), _attempt(2, 0)])
    assert (figures["correct/a"].mean, figures["correct/a"].n) == (0.5, 2)
    assert (figures["correct/b"].mean, figures["correct/b"].n) == (0.0, 1)


def test_paired_differences_cancel_what_is_hard_for_both() -> None:
    """Catches the error of two independent means, several times as large; and items that only one has."""
    first = [_attempt(place, float(place % 2)) for place in range(100)]
    second = [_attempt(place, float(place % 2 or place < 10)) for place in range(120)]
    difference = paired_difference(first, second)
    values = [float(place % 2 == 0 and place < 10) for place in range(100)]
    assert difference.n == 100
    assert difference.mean == pytest.approx(0.05)
    error = statistics.stdev(values) / 10
    assert difference.stderr == pytest.approx(error)
    assert difference.interval == pytest.approx((0.05 - 1.96 * error, 0.05 + 1.96 * error), abs=1e-5)
    assert difference.is_clear


def test_models_that_answer_alike_are_not_told_apart() -> None:
    same = [_attempt(place, float(place % 3 == 0)) for place in range(9)]
    assert not paired_difference(same, same).is_clear
    assert paired_difference(same, same).interval == (0.0, 0.0)
    assert paired_difference(same[:1], same[:1]).interval is None
