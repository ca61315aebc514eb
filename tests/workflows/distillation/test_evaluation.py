"""Held-out prompts of distillation: whether a student says what its teacher said to the same prompt."""

from collections.abc import Sequence
from typing import Any

import pytest

from cookhouse.chat import Message, get_renderer
from cookhouse.data.rows.pairs import question_from_row
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.report import RecordedAnswer
from cookhouse.telemetry import Telemetry
from cookhouse.training import FakeService
from cookhouse.workflows.distillation.evaluation import StudentEvaluation, TeacherRecord, expected_answers
from cookhouse.workflows.distillation.samples import TeacherAnswer

pytestmark = pytest.mark.anyio


def test_a_teacher_is_right_where_it_says_what_the_row_says_behind_its_reasoning() -> None:
    # Catches a right teacher that scores 0, and a student held to reasoning that a row wrote into its answer.
    rows = [
        question_from_row({"input": "2 + 3?", "output": "<think>two and three</think>\n5"}, "x:1"),
        question_from_row({"input": "2 + 4?", "output": "<think>no answer</think>"}, "x:2"),
    ]
    renderer = get_renderer("qwen3", get_tokenizer("cookhouse/tiny"))
    record = expected_answers(rows, [TeacherAnswer(text="5"), TeacherAnswer(text="6")], renderer)
    assert record.metrics["teacher/exact_match"] == 1.0
    assert [each.expected for each in record.answers] == ["5", "6"]


async def test_prompts_that_end_alike_are_told_apart() -> None:
    # Catches a student that is compared with what the teacher said in another conversation.
    tokenizer = get_tokenizer("cookhouse/tiny")
    prompts: list[list[Message]] = [
        [
            {"role": "user", "content": f"{color}?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Sure?"},
        ]
        for color in ("Red", "Blue")
    ]
    answers = [
        RecordedAnswer(prompt="Sure?", expected="It is.", answer=said, is_correct=False) for said in ("Red!", "Blue!")
    ]

    def answer(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
        del theta, chance
        color = "Red" if "Red" in tokenizer.decode(list(prompt_T)) else "Blue"
        said: list[int] = tokenizer.encode(f" {color}!\n", add_special_tokens=False)
        return said

    client: Any = await FakeService(answer=answer).create_lora_training_client("cookhouse/tiny", seed=0)
    evaluation = StudentEvaluation(
        TeacherRecord(metrics={}, answers=answers, prompts=prompts),
        get_renderer("human_ai", tokenizer),
        max_tokens=8,
        context_tokens=None,
        telemetry=Telemetry([]),
        keep=lambda *_: None,
    )
    found = await (await evaluation.begin(client, 0))
    assert found["test/agreement"] == 1.0
