"""Weights that answer: with what room, seed and temperature they are asked, and how what they say is read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import tinker

from cookhouse.chat import Message
from cookhouse.data import build_renderer
from cookhouse.evals import SamplingAnswerer
from cookhouse.evals.benchmarks.answerers import AnswerSampling
from cookhouse.evals.benchmarks.built_in import ARITHMETIC
from cookhouse.evals.benchmarks.inline import benchmark_evaluator
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.settings import TrainingSettings
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MODEL = "cookhouse/tiny"
QUESTION: list[Message] = [{"role": "user", "content": "Where?"}]
DRAW = AnswerSampling(num_samples=2, max_tokens=7, temperature=0.5, seed=3)


class Client:
    """Says one and the same, and records how it is asked."""

    def __init__(self, text: str = " here\n", num_missing: int = 0) -> None:
        self.asked: list[tuple[int, tinker.SamplingParams]] = []
        self._tokens: Sequence[int] = get_tokenizer(MODEL).encode(text, add_special_tokens=False)
        self._num_missing = num_missing

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        self.asked.append((num_samples, params))
        client = await FakeService(answer=lambda *_: self._tokens).create_sampling_client()
        return await client.sample(prompt, num_samples - self._num_missing, params)

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        raise AssertionError(f"nothing is scored: {prompt}")


def answerer(client: Client, context_tokens: int | None = None) -> SamplingAnswerer:
    return SamplingAnswerer(client, build_renderer(MODEL, "human_ai"), context_tokens=context_tokens)


async def test_what_the_draw_says_is_asked_for() -> None:
    # Catches a temperature or a seed that is recorded and not sampled with.
    client = Client()
    answers = await answerer(client)(QUESTION, DRAW)
    [(num_samples, params)] = client.asked
    assert (num_samples, params.max_tokens, params.temperature, params.seed) == (2, 7, 0.5, 3)
    assert params.stop == build_renderer(MODEL, "human_ai").get_stop_sequences()
    assert [(answer.text, answer.is_cut, answer.error) for answer in answers] == [("here", False, None)] * 2


@pytest.mark.parametrize(("left", "room"), [(100, 7), (7, 7), (6, 6), (1, 1)])
async def test_an_answer_has_the_room_that_its_prompt_leaves(left: int, room: int) -> None:
    # Catches a request of one token more than the model takes, which a service refuses.
    length = build_renderer(MODEL, "human_ai").build_generation_prompt(QUESTION).length
    client = Client()
    await answerer(client, context_tokens=length + left)(QUESTION, DRAW)
    assert [params.max_tokens for _, params in client.asked] == [room]


async def test_a_prompt_without_room_is_an_answer_that_failed() -> None:
    length = build_renderer(MODEL, "human_ai").build_generation_prompt(QUESTION).length
    client = Client()
    answers = await answerer(client, context_tokens=length)(QUESTION, DRAW)
    assert client.asked == []
    assert [answer.error for answer in answers] == [f"the prompt has {length} tokens; the model takes {length}"] * 2


async def test_an_answer_that_does_not_end_is_cut() -> None:
    answers = await answerer(Client(" here and there"))(QUESTION, replace(DRAW, max_tokens=100))
    assert [answer.is_cut for answer in answers] == [True, True]


async def test_answers_that_a_service_leaves_out_have_failed() -> None:
    # Catches a mean over fewer answers than the evaluation says.
    answers = await answerer(Client(num_missing=1))(QUESTION, DRAW)
    assert [answer.error for answer in answers] == [None, "the service gave fewer answers than it was asked for"]


async def test_a_message_that_the_format_cannot_write_is_an_answer_that_failed() -> None:
    image: Any = [{"role": "user", "content": [{"type": "image", "image": "nowhere.png"}]}]
    client = Client()
    answers = await answerer(client)(image, DRAW)
    assert client.asked == []
    assert len(answers) == 2
    assert all(answer.error for answer in answers)


async def test_a_run_asks_its_benchmarks_with_its_own_seed() -> None:
    # Catches runs that differ in their seed and have the same luck at a benchmark.
    seeds = []
    for seed in (1, 2):
        client = Client()
        settings = TrainingSettings(model_name=MODEL, num_eval=3, seed=seed)
        evaluate: Any = benchmark_evaluator(ARITHMETIC)(settings, build_renderer(MODEL, "human_ai"))
        await evaluate(client)
        seeds.append({params.seed for _, params in client.asked})
    assert [len(some) for some in seeds] == [3, 3]
    assert not seeds[0] & seeds[1]
