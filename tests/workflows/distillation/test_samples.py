"""What a teacher is asked for: answers and examples that fit its context, with seeds of their own."""

from pathlib import Path
from typing import Any

import pytest
import tinker

from cookhouse.assets import TINY_MODEL
from cookhouse.data import PromptRow, build_renderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.training import FakeService
from cookhouse.workflows.distillation.off_policy import example_tokens
from cookhouse.workflows.distillation.questions import TeacherQuestion
from cookhouse.workflows.distillation.samples import AnswerExtractor, TeacherSampler, refuse_all_failed

pytestmark = pytest.mark.anyio

ROW = PromptRow(prompt=[], answer=None, source="x:1")


@pytest.mark.parametrize(("context", "expected"), [(None, 8), (100, 8), (12, 7), (5, 1)])
async def test_an_answer_has_the_room_that_its_prompt_leaves(context: int | None, expected: int) -> None:
    # Catches long prompts whose answers are dropped, because a service refuses more than its context.
    asked: list[int | None] = []

    class Recording:
        async def sample(self, prompt: Any, count: int, params: tinker.SamplingParams) -> tinker.SampleResponse:
            del prompt, count
            asked.append(params.max_tokens)
            return tinker.SampleResponse(sequences=[])

    reader = AnswerExtractor(build_renderer(TINY_MODEL, "human_ai"), None)
    settings = OffPolicyDistillationSettings(max_tokens=8)
    question = TeacherQuestion(number=0, row=ROW, student_tokens=[1], teacher_tokens=[1, 2, 3, 4, 5])
    await TeacherSampler(Recording(), reader, settings, context_tokens=context)([question], 0)
    assert asked == [expected]


async def test_a_service_that_gives_fewer_answers_than_asked_has_failed_for_the_others() -> None:
    # Catches a service without an answer that ends the run with an IndexError.
    class Empty:
        async def sample(self, *_: Any) -> tinker.SampleResponse:
            return tinker.SampleResponse(sequences=[])

    reader = AnswerExtractor(build_renderer(TINY_MODEL, "human_ai"), None)
    settings = OffPolicyDistillationSettings(samples_per_prompt=2)
    question = TeacherQuestion(number=0, row=ROW, student_tokens=[1], teacher_tokens=[1])
    [answers] = await TeacherSampler(Empty(), reader, settings)([question], 0)
    assert [answer.failed for answer in answers] == ["request", "request"]
    with pytest.raises(InputError, match=r"all 2 answers .* failed; the first: the service gave fewer answers than"):
        refuse_all_failed(answers, "to a prompt")


@pytest.mark.parametrize(
    ("top_k", "context", "expected"), [(0, 50, 50), (4, 50, 49), (4, None, 64), (4, 100, 64), (4, 64, 63)]
)
def test_an_example_leaves_room_for_the_token_behind_it_that_is_sampled(
    top_k: int, context: int | None, expected: int
) -> None:
    # Catches a run that ends at the first example that fills the context.
    settings = OffPolicyDistillationSettings(teacher_top_k=top_k, max_length=64)
    assert example_tokens(settings, context) == expected


async def seeds(settings: OffPolicyDistillationSettings, cache: Path | None = None) -> list[list[int | None]]:
    """Of the requests for two questions, in two epochs."""
    asked: list[int | None] = []

    class Recording:
        async def sample(self, prompt: Any, count: int, params: tinker.SamplingParams) -> tinker.SampleResponse:
            asked.append(params.seed)
            return await client.sample(prompt, count, params)

    client = await FakeService(answer=lambda *_: said).create_sampling_client()
    said = get_tokenizer(TINY_MODEL).encode(" so\n", add_special_tokens=False)
    reader = AnswerExtractor(build_renderer(TINY_MODEL, "human_ai"), None)
    questions = [
        TeacherQuestion(number=number, row=ROW, student_tokens=[1], teacher_tokens=[1, 2]) for number in range(2)
    ]
    sampler = TeacherSampler(Recording(), reader, settings, cache=cache)
    found = []
    for epoch in range(2):
        asked.clear()
        await sampler(questions, epoch)
        found.append([*asked])
    return found


async def test_each_epoch_and_each_prompt_draws_answers_of_its_own(tmp_path: Path) -> None:
    # Catches an epoch that pays for the answers of the one before, and one answer for prompts that read alike.
    settings = OffPolicyDistillationSettings(max_tokens=8)
    first, second = await seeds(settings)
    assert len({*first, *second}) == 4
    assert await seeds(settings) == [first, second], "the same in a run that is resumed"
    kept, again = await seeds(settings, tmp_path / "kept.jsonl")
    assert len(set(kept)) == 2
    assert again == [], "what is kept is not asked for again"
