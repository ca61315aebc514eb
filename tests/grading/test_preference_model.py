"""Preference models: probabilities of labels, in both orders, and what is no answer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import tinker

from cookhouse.chat import Comparison, ComparisonRenderer, Message
from cookhouse.data import build_renderer
from cookhouse.errors import InputError, ServiceError
from cookhouse.grading import CompleterPreferenceModel, GenerativePreferenceModel, Judgment
from cookhouse.models.tokenizers import get_tokenizer

pytestmark = pytest.mark.anyio

TINY = "cookhouse/tiny"


def said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def comparing(a: str, b: str) -> Comparison:
    return Comparison(prompt=[{"role": "user", "content": "Say it."}], completion_a=said(a), completion_b=said(b))


class Weights:
    """Says how likely each label is, by which answer stands first."""

    def __init__(self, by_first: Mapping[str, Sequence[float | None]]) -> None:
        self.by_first = by_first
        self.labels = ComparisonRenderer(build_renderer(TINY, "human_ai")).label_tokens

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        *before, label = prompt.to_ints()
        text = str(get_tokenizer(TINY).decode(before))
        first = text.split("Completion A ====\nAI: ")[1].split("\n")[0]
        chance = self.by_first[first][self.labels.index(label)]
        return [None] * len(before) + [None if chance is None else math.log(chance)]

    async def sample(self, *_: Any) -> Any:
        raise AssertionError


def model(by_first: Mapping[str, Sequence[float | None]]) -> GenerativePreferenceModel:
    return GenerativePreferenceModel(ComparisonRenderer(build_renderer(TINY, "human_ai")), Weights(by_first))


async def test_probabilities_are_those_of_the_labels_among_themselves_over_both_orders() -> None:
    # Catches labels that are not normalized, a swapped order that is not swapped back, and one order alone.
    judged = await model({"yes": (0.4, 0.1, 0.0625), "no": (0.02, 0.06, 0.02)})(comparing("yes", "no"))
    given, other = [0.4 / 0.5625, 0.1 / 0.5625, 0.0625 / 0.5625], [0.2, 0.6, 0.2]
    assert (judged.a, judged.b) == pytest.approx(((given[0] + other[1]) / 2, (given[1] + other[0]) / 2))
    assert judged.tie == pytest.approx((given[2] + other[2]) / 2)
    assert judged.a + judged.b + judged.tie == pytest.approx(1.0)
    assert judged.score == pytest.approx(judged.a - judged.b)
    assert not judged.is_order_dependent
    turned = await model({"yes": (0.4, 0.1, 0.0625), "no": (0.02, 0.06, 0.02)})(comparing("no", "yes"))
    assert (turned.score, turned.position_bias) == pytest.approx((-judged.score, judged.position_bias))


async def test_who_prefers_whatever_stands_first_prefers_nothing() -> None:
    judged = await model({"yes": (0.9, 0.1, 1e-9), "no": (0.9, 0.1, 1e-9)})(comparing("yes", "no"))
    assert judged.score == pytest.approx(0.0)
    assert judged.position_bias == pytest.approx(0.8)
    assert judged.is_order_dependent


async def test_a_label_without_a_logprob_is_an_error_and_no_tie() -> None:
    with pytest.raises(ServiceError, match="gave no logprobs of its labels"):
        await model({"yes": (0.9, None, 0.1), "no": (0.9, 0.1, 0.1)})(comparing("yes", "no"))


async def test_a_comparison_that_the_model_cannot_take_is_refused_before_it_is_asked() -> None:
    renderer = ComparisonRenderer(build_renderer(TINY, "human_ai"))
    num_tokens = len(renderer.build_prompt(comparing("yes", "no")))
    weights = Weights({"yes": (0.9, 0.1, 0.1), "no": (0.1, 0.9, 0.1)})
    fits = GenerativePreferenceModel(renderer, weights, context_tokens=num_tokens + 1)
    assert (await fits(comparing("yes", "no"))).score > 0
    with pytest.raises(InputError, match=f"has {num_tokens} tokens, and the preference model takes {num_tokens} with"):
        await GenerativePreferenceModel(renderer, weights, context_tokens=num_tokens)(comparing("yes", "no"))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("A", "B"), Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False)),
        (("B.", "**A**"), Judgment(a=0.0, b=1.0, tie=0.0, position_bias=0.0, is_order_dependent=False)),
        (("A", "A, since it is first"), Judgment(a=0.5, b=0.5, tie=0.0, position_bias=1.0, is_order_dependent=True)),
        (("Tie", "tie"), Judgment(a=0.0, b=0.0, tie=1.0, position_bias=0.0, is_order_dependent=False)),
        (("a tie", "A tie."), Judgment(a=0.0, b=0.0, tie=1.0, position_bias=0.0, is_order_dependent=False)),
        (
            ("A is better.", "Completion B"),
            Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False),
        ),
        (
            ("a\nIt is whole.", "b - whole"),
            Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False),
        ),
    ],
)
async def test_another_model_says_a_label_in_both_orders(answers: tuple[str, str], expected: Judgment) -> None:
    async def complete(messages: Sequence[Message]) -> Message:
        asked = str(messages[-1]["content"])
        assert "user: Say it." in asked
        return said(answers[asked.index("yes") > asked.index("no, never")])[0]

    assert await CompleterPreferenceModel(complete)(comparing("yes", "no, never")) == expected


@pytest.mark.parametrize(
    "answer", ["As both are good", "A better answer is B", "A-grade, both", "A is worse than B", "A or B", "tied", ""]
)
async def test_an_answer_that_is_no_label_is_an_error_and_no_tie(answer: str) -> None:
    """Catches words that happen to begin with a label, and are taken for it."""

    async def complete(messages: Sequence[Message]) -> Message:  # noqa: ARG001
        return said(answer)[0]

    with pytest.raises(InputError, match=f"answered '{answer}'; it must say A, B or Tie"):
        await CompleterPreferenceModel(complete)(comparing("yes", "no"))
