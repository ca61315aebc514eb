"""Win rates: answers against others to the same prompts, as a preference model compares them."""

from collections.abc import Mapping

import pytest

from cookhouse.chat import Comparison, text_of
from cookhouse.errors import InputError, ServiceError
from cookhouse.evals import RivalAnswers, judge_answers, wilson_interval, win_metrics
from cookhouse.grading import Judgment

pytestmark = pytest.mark.anyio


async def longer_is_better(comparison: Comparison) -> Judgment:
    """By a tenth for each character; the orders disagree about answers of one length."""
    a, b = (text_of(said[0]) for said in (comparison.completion_a, comparison.completion_b))
    if "endless" in a:
        raise InputError("a prompt with its two answers has too many tokens")
    score = (len(a) - len(b)) / 10
    is_equal = len(a) == len(b)
    return Judgment(a=(1 + score) / 2, b=(1 - score) / 2, tie=0.0, position_bias=0.25, is_order_dependent=is_equal)


def rivals(answer: str, **others: str) -> RivalAnswers:
    return RivalAnswers(prompt=[{"role": "user", "content": "Say it."}], answer=answer, others=others)


async def test_a_win_counts_one_and_a_draw_a_half_with_an_interval_of_its_own() -> None:
    # Catches probabilities in the place of wins, draws that are left out, and opponents that are mixed up.
    asked = [
        rivals("aaa", chosen="a", initial="aaaa"),  # +0.2, -0.1
        rivals("aa", chosen="bb", initial="aa"),  # 0 by the model, 0 as it is the same
        rivals("", chosen="b", initial=""),  # loses unasked, draws with itself
        rivals("aaaaa", chosen="b"),  # +0.4, not compared with the initial one
    ]
    judged = await judge_answers(longer_is_better, asked)
    assert [each.verdict("chosen") for each in judged] == ["wins", "draws", "loses", "wins"]
    assert [each.verdict("initial") for each in judged] == ["loses", "draws", "draws", None]
    low, high = wilson_interval(2.5, 4)
    expected: Mapping[str, float] = {
        "win_rate_chosen": 2.5 / 4,
        "win_rate_chosen_n": 4.0,
        "win_rate_chosen_low": low,
        "win_rate_chosen_high": high,
        "win_share_chosen": (0.6 + 0.5 + 0.0 + 0.7) / 4,
        "win_rate_initial": 1.0 / 3,
        "win_rate_initial_n": 3.0,
        "win_share_initial": (0.45 + 0.5 + 0.5) / 3,
        "order_disagreement": 1 / 4,  # of the comparisons that the model was asked about
        "position_bias": 0.25,
        "not_compared": 0.0,
    }
    found = win_metrics(judged)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


async def test_what_the_model_cannot_take_is_left_out_and_counted() -> None:
    judged = await judge_answers(longer_is_better, [rivals("endless", chosen="a"), rivals("aa", chosen="a")])
    found = win_metrics(judged)
    assert (found["win_rate_chosen"], found["win_rate_chosen_n"], found["not_compared"]) == (1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="no answer can be compared: a prompt with its two answers has too many"):
        await judge_answers(longer_is_better, [rivals("endless", chosen="a")])


async def test_a_model_that_fails_is_no_draw() -> None:
    async def failing(comparison: Comparison) -> Judgment:  # noqa: ARG001
        raise ServiceError("the preference model is gone")

    with pytest.raises(ServiceError, match="the preference model is gone"):
        await judge_answers(failing, [rivals("aa", chosen="a")])
