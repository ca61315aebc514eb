"""Held-out answers under a preference model: each is compared with what was said to its own prompt."""

from collections.abc import Sequence

import pytest

from cookhouse.chat import Comparison, Termination, text_of
from cookhouse.evals import HeldOutAnswer
from cookhouse.grading import Judgment
from cookhouse.report import RecordedAnswer
from cookhouse.workflows.preference.evaluation import AnswerJudge

pytestmark = pytest.mark.anyio

PROMPTS = ("red", "green", "blue")


def answers(*texts: str) -> list[HeldOutAnswer]:
    return [
        HeldOutAnswer(
            prompt=[{"role": "user", "content": f"say {word}"}],
            expected=f"{word} is chosen",
            answer=text,
            is_correct=False,
            termination=Termination.STOP_SEQUENCE,
            group=None,
        )
        for word, text in zip(PROMPTS, texts, strict=True)
    ]


class Compared:
    """Keeps what it is asked, and prefers the first answer."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, str, str]] = set()

    async def __call__(self, comparison: Comparison) -> Judgment:
        said = (comparison.prompt, comparison.completion_a, comparison.completion_b)
        prompt, a, b = (text_of(messages[-1]) for messages in said)
        self.asked.add((prompt, a, b))
        return Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False)


def judge(model: Compared, initial: Sequence[HeldOutAnswer] = ()) -> AnswerJudge:
    recorded = [
        RecordedAnswer(prompt=text_of(each.prompt[-1]), expected=each.expected, answer=each.answer, is_correct=False)
        for each in initial
    ]
    return AnswerJudge(model, read_initial=lambda: recorded, keep=lambda *_: None)


FIRST = answers(*(f"{word} at first" for word in PROMPTS))
LATER = answers(*(f"{word} later" for word in PROMPTS))
OF_ITS_OWN_PROMPT = {
    *((f"say {word}", f"{word} later", f"{word} is chosen") for word in PROMPTS),
    *((f"say {word}", f"{word} later", f"{word} at first") for word in PROMPTS),
}


async def test_an_answer_is_compared_with_those_to_its_own_prompt() -> None:
    # Catches what the initial weights said to another prompt in the place of what they said to this one.
    model = Compared()
    judging = judge(model)
    judging.begin(0)
    await judging(0, FIRST)
    model.asked.clear()
    metrics, recorded = await judging(3, LATER)
    assert model.asked == OF_ITS_OWN_PROMPT
    assert metrics["win_rate_initial"] == 1.0
    assert [(each.prompt, each.answer) for each in recorded] == [(f"say {word}", f"{word} later") for word in PROMPTS]


async def test_after_a_resume_it_is_compared_with_what_the_folder_has_of_its_own_prompt() -> None:
    model = Compared()
    await judge(model, FIRST)(3, LATER)
    assert model.asked == OF_ITS_OWN_PROMPT


async def test_initial_answers_of_other_prompts_are_not_compared() -> None:
    # Catches a folder whose answers are of another number of prompts, which nobody can tell apart.
    model = Compared()
    metrics, _ = await judge(model, FIRST[:2])(3, LATER)
    assert model.asked == {each for each in OF_ITS_OWN_PROMPT if each[2].endswith("is chosen")}
    assert "win_rate_initial" not in metrics
