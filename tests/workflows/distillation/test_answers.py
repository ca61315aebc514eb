"""A teacher's answers as datums: which logprob stands at which token, and what the divergence from them is."""

from collections.abc import Sequence

import numpy as np
import pytest
import tinker

from cookhouse.data import PromptRow
from cookhouse.telemetry import Telemetry
from cookhouse.training import Work
from cookhouse.weights.checkpoints import Cursor
from cookhouse.workflows.distillation.answers import FORWARD_KL, AnswerAssembler, taught_objective
from cookhouse.workflows.distillation.questions import QuestionBatch, TeacherQuestion
from cookhouse.workflows.distillation.samples import TeacherAnswer

pytestmark = pytest.mark.anyio

PROMPT = [1, 2, 3]
ANSWER = TeacherAnswer(tokens=[4, 5, 6], logprobs=[-0.25, -0.5, -1.0], text="said")


async def taught(answer: TeacherAnswer, *, max_length: int = 100) -> tinker.Datum:
    """The datum that the tokens of an answer to `PROMPT` make."""

    async def ask(questions: Sequence[TeacherQuestion], epoch: int) -> list[list[TeacherAnswer]]:
        del epoch
        return [[answer] for _ in questions]

    assemble = AnswerAssembler(
        ask,  # type: ignore[arg-type]
        Telemetry(),
        max_length=max_length,
    )
    row = PromptRow(prompt=[], answer=None, source="x:1")
    question = TeacherQuestion(number=0, row=row, student_tokens=PROMPT, teacher_tokens=PROMPT)
    [datum] = (await assemble(QuestionBatch(questions=[question], epoch=0))).data_D
    return datum


def values(datum: tinker.Datum, name: str) -> list[float]:
    return [float(value) for value in datum.loss_fn_inputs[name].to_numpy()]


@pytest.mark.parametrize(("max_length", "kept"), [(100, 3), (5, 2)])
async def test_a_logprob_stands_where_its_token_is_the_target(max_length: int, kept: int) -> None:
    # Catches logprobs of the teacher that are shifted by one, also where the end of an answer is cut off.
    datum = await taught(ANSWER, max_length=max_length)
    at_target = zip(values(datum, "target_tokens"), values(datum, "teacher_logprobs"), strict=True)
    said = zip(ANSWER.tokens, ANSWER.logprobs, strict=True)
    assert list(at_target) == [(2.0, 0.0), (3.0, 0.0), *said][: 2 + kept]
    assert values(datum, "weights") == [0.0, 0.0, 1.0, 1.0, 1.0][: 2 + kept]


async def test_the_divergence_is_of_the_student_from_the_teacher() -> None:
    # Catches a sign: a student that finds the answer less likely than its teacher is above 0. And tokens of the prompt.
    datum = await taught(ANSWER)
    student = np.array([-9.0, -9.0, -0.75, -2.5, -1.25], dtype=np.float32)
    output = tinker.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=[{"logprobs": tinker.TensorData.from_numpy(student)}],
        metrics={},
    )
    part = (Work(cursor=Cursor(), data_D=[datum], payload=None), output)
    found = taught_objective(has_teacher_logprobs=True).metrics([part])
    assert found[FORWARD_KL] == pytest.approx((0.5 + 2.0 + 0.25) / 3)
    assert found["train/loss"] == pytest.approx((0.75 + 2.5 + 1.25) / 3)
    assert FORWARD_KL not in taught_objective(has_teacher_logprobs=False).metrics([part])


async def test_an_answer_without_logprobs_has_no_divergence() -> None:
    assert "teacher_logprobs" not in (await taught(TeacherAnswer(tokens=[4, 5], text="said"))).loss_fn_inputs
