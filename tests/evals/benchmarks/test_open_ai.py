"""Answers by chat completions, over a server in memory."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cookhouse.errors import InputError, ServiceError
from cookhouse.evals import OpenAIAnswerer, SampledAnswer
from cookhouse.evals.benchmarks.answerers import AnswerSampling
from cookhouse.evals.benchmarks.open_ai import CompletedBy

pytestmark = pytest.mark.anyio
DRAW = AnswerSampling(num_samples=1, max_tokens=7, temperature=0.5, seed=3)
ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]


def answerer(handle: Callable[[httpx.Request], httpx.Response], **more: Any) -> OpenAIAnswerer:
    transport = httpx.MockTransport(handle)
    return OpenAIAnswerer("http://model.test/v1/", "some", transport=transport, first_pause_seconds=0.0, **more)


def completion(*texts: str, reason: str = "stop") -> httpx.Response:
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": reason} for text in texts]
    return httpx.Response(200, json={"choices": choices})


async def test_what_is_asked() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return completion("2", "3")

    draw = AnswerSampling(num_samples=2, max_tokens=7, temperature=0.5, seed=3)
    asked = answerer(handle, api_key="secret")
    assert await asked(ASKED, draw) == [SampledAnswer(text="2"), SampledAnswer(text="3")]
    await asked.aclose()
    assert str(seen[0].url) == "http://model.test/v1/chat/completions"
    assert seen[0].headers["Authorization"] == "Bearer secret"
    assert json.loads(seen[0].content) == {
        "model": "some",
        "messages": ASKED,
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
        "n": 2,
    }


async def test_an_answer_that_was_cut_is_marked() -> None:
    asked = answerer(lambda _: completion("2", reason="length"))
    assert await asked(ASKED, DRAW) == [SampledAnswer(text="2", is_cut=True)]


async def test_fewer_answers_than_asked_for_are_failures() -> None:
    """Catches a silent mean over those that came."""
    draw = AnswerSampling(num_samples=3, max_tokens=7, temperature=0.5, seed=1)
    answers = await answerer(lambda _: completion("2"))(ASKED, draw)
    assert [answer.error is None for answer in answers] == [True, False, False]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_is_overloaded_is_asked_again(status: int) -> None:
    responses = iter([httpx.Response(status), httpx.Response(status), completion("2")])
    assert await answerer(lambda _: next(responses))(ASKED, DRAW) == [SampledAnswer(text="2")]


async def test_what_stays_broken_ends_the_evaluation() -> None:
    with pytest.raises(ServiceError, match=r"failed with 503: try later"):
        await answerer(lambda _: httpx.Response(503, json={"error": {"message": "try later"}}))(ASKED, DRAW)


async def test_nobody_there() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ServiceError, match=r"model.test/v1/chat/completions cannot be reached: refused"):
        await answerer(refuse)(ASKED, DRAW)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_model_that_is_gone_or_a_bad_key(status: int) -> None:
    body = {"error": {"message": "no such model"}}
    with pytest.raises(InputError, match=rf"refused model 'some' with {status}: no such model; .*OPENAI_API_KEY"):
        await answerer(lambda _: httpx.Response(status, json=body))(ASKED, DRAW)


async def test_a_request_that_is_refused_is_an_answer_that_failed() -> None:
    """Catches one prompt that is too long ending an evaluation of thousands."""
    answers = await answerer(lambda _: httpx.Response(400, json={"error": "too long"}))(ASKED, DRAW)
    assert answers == [SampledAnswer(error="refused with 400: too long")]


async def test_what_every_request_asks_alike_ends_the_evaluation() -> None:
    """Catches an evaluation in which every answer failed for a setting of its own."""
    body = {"error": {"message": "n: at most 128", "param": "n"}}
    with pytest.raises(InputError, match=r"refused what is asked: n: at most 128"):
        await answerer(lambda _: httpx.Response(400, json=body))(ASKED, DRAW)
    body = {"error": {"message": "too long", "param": "messages"}}
    answers = await answerer(lambda _: httpx.Response(400, json=body))(ASKED, DRAW)
    assert answers == [SampledAnswer(error="refused with 400: too long")]


@pytest.mark.parametrize("address", ["nonsense", "ftp://host/v1", "localhost:8000/v1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match=r"is no address; give one such as http://127\.0\.0\.1:8000/v1"):
        OpenAIAnswerer(address, "some")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"choices": [{}]}', b'{"choices": [{"message": {"content": 3}}]}']
)
async def test_what_is_no_completion(body: bytes) -> None:
    with pytest.raises(ServiceError, match="did not answer with a chat completion"):
        await answerer(lambda _: httpx.Response(200, content=body))(ASKED, DRAW)


async def test_each_pause_is_twice_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches an address that is overloaded and asked again at once, by all items together.
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("cookhouse.evals.benchmarks.open_ai.asyncio.sleep", note)
    transport = httpx.MockTransport(lambda _: httpx.Response(503, text="busy"))
    ask = OpenAIAnswerer("http://model.test/v1", "some", transport=transport, first_pause_seconds=0.5)
    with pytest.raises(ServiceError, match="failed with 503: busy"):
        await ask(ASKED, DRAW)
    assert pauses == [0.5, 1.0, 2.0, 4.0]


async def test_a_judge_at_the_address_is_asked_greedily_and_fails_aloud() -> None:
    """Catches an empty answer in the place of one that failed, which would be no verdict."""
    seen: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return completion("B") if len(seen) == 1 else httpx.Response(400, json={"error": {"message": "too long"}})

    judge = CompletedBy(answerer(handle))
    assert await judge(ASKED) == {"role": "assistant", "content": "B"}
    assert seen[0]["temperature"] == 0.0
    with pytest.raises(ServiceError, match=r"the judge gave no answer: .*too long"):
        await judge(ASKED)
