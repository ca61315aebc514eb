"""Exact match, with a client that answers from a table."""

import asyncio
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.chat import Renderer, get_renderer
from cookhouse.data import Conversation
from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.errors import BadRowsError, InputError, ServiceError
from cookhouse.evals import ExactMatchEvaluator
from cookhouse.models.tokenizers import get_tokenizer

pytestmark = pytest.mark.anyio


@pytest.fixture
def renderer() -> Renderer:
    return get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))


class Client:
    """Answers the prompt that contains a key with the text beside it."""

    def __init__(self, answers: dict[str, str], delay: float = 0.0) -> None:
        self.answers = answers
        self.delay = delay
        self.in_flight = 0
        self.most_in_flight = 0
        self.params: list[tinker.SamplingParams] = []

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        assert num_samples == 1
        self.params.append(sampling_params)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(self.delay)
        self.in_flight -= 1
        tokenizer = get_tokenizer("cookhouse/tiny")
        text = tokenizer.decode(prompt.to_ints())
        [answer] = [answer for key, answer in self.answers.items() if key in text]
        if answer == "fail":
            raise RuntimeError("the service is gone")
        tokens = np.array(tokenizer.encode(answer), dtype=np.int32)
        sequence = tinker.types.SampledSequence(stop_reason="stop", sequence_id="0", tokens_np=tokens)
        return tinker.SampleResponse(sequences=[sequence])


def conversations(*rows: tuple[str, str, str]) -> list[Conversation]:
    return conversations_from_rows({"input": q, "output": a, "skill": skill} for q, a, skill in rows)


ROWS = (("one", "1", "math"), ("two", "2", "math"), ("red", "der", "reverse"), ("tea", "aet", "reverse"))


async def test_a_service_without_an_answer_is_an_error(renderer: Renderer) -> None:
    """Catches an IndexError that names neither the service nor what it was asked."""

    class Empty:
        async def sample(self, *_: Any) -> tinker.SampleResponse:
            return tinker.SampleResponse(sequences=[])

    with pytest.raises(ServiceError, match="asked for 1 sample and gave 0"):
        await ExactMatchEvaluator(conversations(*ROWS), renderer, max_tokens=8)(Empty())


async def test_an_answer_that_the_limit_ended_is_counted(renderer: Renderer) -> None:
    # Catches a limit that is told as a wrong answer.
    client = Client({"one": "1<|im_end|>", "two": "two two two"})
    length = len(get_tokenizer("cookhouse/tiny").encode("two two two"))
    metrics = await ExactMatchEvaluator(conversations(*ROWS[:2]), renderer, max_tokens=length)(client)
    assert (metrics["truncated"], metrics["malformed"]) == (0.5, 0.5)


async def test_figures_and_answers_by_hand(renderer: Renderer) -> None:
    client = Client({"one": "1<|im_end|>", "two": " 2\n<|im_end|>", "red": "red<|im_end|>", "tea": "aet aet"})
    evaluate = ExactMatchEvaluator(conversations(*ROWS), renderer, max_tokens=9, group_by="skill")
    metrics = await evaluate(client)
    assert metrics == {
        "exact_match": 0.5,
        "exact_match_stderr": pytest.approx((1 / 3) ** 0.5 / 2),
        "exact_match_n": 4.0,
        "malformed": 0.25,
        "truncated": 0.0,
        "exact_match/math": 1.0,
        "exact_match/reverse": 0.0,
    }
    assert [(a.expected, a.answer, a.is_correct) for a in evaluate.answers] == [
        ("1", "1", True),
        ("2", " 2\n", True),
        ("der", "red", False),
        ("aet", "aet aet", False),
    ]


async def test_sampling_is_greedy_and_stops_where_the_renderer_says(renderer: Renderer) -> None:
    client = Client({"one": "1<|im_end|>"})
    metrics = await ExactMatchEvaluator(conversations(ROWS[0]), renderer, max_tokens=9)(client)
    [params] = client.params
    assert (params.temperature, params.max_tokens, params.stop) == (0.0, 9, renderer.get_stop_sequences())
    assert metrics["exact_match_stderr"] is None


async def test_an_answer_gets_what_its_prompt_leaves_of_the_context(renderer: Renderer) -> None:
    # Catches an evaluation that the service refuses in the middle of a run.
    rows = conversations(("one", "1", "s"), ("two " * 40, "2", "s"), ("three " * 400, "3", "s"))
    lengths = [renderer.build_generation_prompt(row.messages[:1]).length for row in rows]
    client = Client({"one": "1<|im_end|>", "two": "2<|im_end|>"})
    context = lengths[1] + 3
    evaluate = ExactMatchEvaluator(rows, renderer, max_tokens=9, context_tokens=context)
    assert evaluate.notes == [
        "1 of 3 held-out conversations are not answered in evaluations, since their prompts leave no room: the model "
        f"takes {context} tokens in all",
        f"1 of 3 held-out conversations are answered with fewer than 9 tokens: the model takes {context} tokens in all",
    ]
    assert evaluate.longest_tokens == context
    assert (await evaluate(client))["exact_match_n"] == 2.0
    assert sorted(params.max_tokens or 0 for params in client.params) == [3, 9]
    with pytest.raises(InputError, match=r"all 3 held-out conversations are longer than the 4 tokens .*num_eval=0"):
        ExactMatchEvaluator(rows, renderer, max_tokens=9, context_tokens=4)


async def test_requests_in_flight_are_bounded_and_more_than_one(renderer: Renderer) -> None:
    client = Client({"q": "x<|im_end|>"}, delay=0.01)
    rows = conversations(*[(f"q{i}", "x", "s") for i in range(10)])
    await ExactMatchEvaluator(rows, renderer, max_tokens=1, concurrency=3)(client)
    assert client.most_in_flight == 3


async def test_a_failed_request_fails_the_evaluation_with_its_own_error(renderer: Renderer) -> None:
    client = Client({"one": "1<|im_end|>", "two": "fail"})
    with pytest.raises(RuntimeError, match="the service is gone"):
        await ExactMatchEvaluator(conversations(*ROWS[:2]), renderer, max_tokens=9)(client)


async def test_an_answer_with_a_tool_call_is_no_match(renderer: Renderer) -> None:
    client = Client({"one": '1\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>'})
    assert (await ExactMatchEvaluator(conversations(ROWS[0]), renderer, max_tokens=9)(client))["exact_match"] == 0.0


@pytest.mark.parametrize("name", ["qwen3", "qwen3_disable_thinking", "qwen3_instruct", "role_colon"])
@pytest.mark.parametrize("thinking", ["", "<think>\nhm\n</think>\n\n"])
async def test_a_model_that_says_what_it_was_trained_to_say_is_right(name: str, thinking: str) -> None:
    # Catches an expected answer read otherwise than the model's: with its thinking, or not in the tokenizer's form.
    renderer = get_renderer(name, get_tokenizer("cookhouse/tiny"))
    if thinking and name in ("qwen3_disable_thinking", "qwen3_instruct"):
        with pytest.raises(InputError, match="row 1: this renderer trains no thinking"):
            ExactMatchEvaluator(conversations(("one", thinking + "1", "s")), renderer, max_tokens=9)
        return
    rows = conversations(("one", thinking + "cafe\u0301", "s"))
    client = Client({"one": renderer.encoder.decode(renderer.build_response(rows[0].messages))})
    evaluate = ExactMatchEvaluator(rows, renderer, max_tokens=9)
    assert (await evaluate(client))["exact_match"] == 1.0
    [answer] = evaluate.answers
    assert answer.expected == ("café" if name == "qwen3" else thinking + "café")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x"}],
        [{"role": "assistant", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": " "}],
    ],
)
def test_a_conversation_without_an_answer_to_match_is_refused(renderer: Renderer, messages: list[Any]) -> None:
    rows = conversations_from_rows([{"messages": messages}])
    with pytest.raises(InputError, match="row 1: a held-out conversation must end in an assistant message"):
        ExactMatchEvaluator(rows, renderer, max_tokens=9)
    with pytest.raises(BadRowsError, match="2 rows cannot be used"):
        ExactMatchEvaluator([*rows, *rows], renderer, max_tokens=9)
    with pytest.raises(InputError, match="there are no held-out conversations"):
        ExactMatchEvaluator([], renderer, max_tokens=9)


async def test_exact_match_tells_where_half_of_the_answers_are_short(renderer: Renderer) -> None:
    """Catches a run in a house style whose headline stays at 0% whatever it learns."""
    long = "We are open from nine in the morning to six in the evening, from Monday to Friday."
    rows = [("one", "1", "a"), ("two", long, "a"), ("red", long, "a")]
    assert ExactMatchEvaluator(conversations(*rows[:2]), renderer, max_tokens=8).is_telling
    assert not ExactMatchEvaluator(conversations(*rows), renderer, max_tokens=8).is_telling
