"""What a teacher is asked for: answers and examples that fit its context."""

from typing import Any

import pytest
import tinker

from cookhouse.assets import TINY_MODEL
from cookhouse.data import build_renderer
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.training import AnswerReader, Question, TeacherSampler
from cookhouse.workflows.distillation.off_policy import example_tokens

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("context", "expected"), [(None, 8), (100, 8), (12, 7), (5, 1)])
async def test_an_answer_has_the_room_that_its_prompt_leaves(context: int | None, expected: int) -> None:
    # Catches long prompts whose answers are dropped, because a service refuses more than its context.
    asked: list[int | None] = []

    class Recording:
        async def sample(self, prompt: Any, count: int, params: tinker.SamplingParams) -> tinker.SampleResponse:
            del prompt, count
            asked.append(params.max_tokens)
            return tinker.SampleResponse(sequences=[])

    reader = AnswerReader(build_renderer(TINY_MODEL, "human_ai"), None)
    settings = OffPolicyDistillationSettings(max_tokens=8)
    question = Question(number=0, messages=[], student_tokens=[1], teacher_tokens=[1, 2, 3, 4, 5], source="x:1")
    await TeacherSampler(Recording(), reader, settings, stop=[], seed=0, context_tokens=context)([question], 0)
    assert asked == [expected]


@pytest.mark.parametrize(
    ("top_k", "context", "expected"), [(0, 50, 50), (4, 50, 49), (4, None, 64), (4, 100, 64), (4, 64, 63)]
)
def test_an_example_leaves_room_for_the_token_behind_it_that_is_sampled(
    top_k: int, context: int | None, expected: int
) -> None:
    # Catches a run that ends at the first example that fills the context.
    settings = OffPolicyDistillationSettings(teacher_top_k=top_k, max_length=64)
    assert example_tokens(settings, context) == expected
