"""The hosted service's paths by plain HTTP: the same keys, answers, streams and errors as under /v1."""

import json
from typing import Any

import httpx
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.hosting import KEY, OTHER_KEY, Host

PREFIXES = ["/v1", "/oai/api/v1"]
MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
KINDS = ["completions", "chat/completions"]


@pytest.fixture(params=PREFIXES)
def base(host: Host, request: pytest.FixtureRequest) -> str:
    return f"{host.url}{request.param}"


def _ask(base: str, kind: str, *, headers: Any = None, **fields: Any) -> httpx.Response:
    asked = {"prompt": "Hello"} if kind == "completions" else {"messages": MESSAGES}
    headers = {"Authorization": f"Bearer {KEY}"} if headers is None else headers
    body = {"model": MODEL, "max_tokens": 5, **asked} | fields
    return httpx.post(f"{base}/{kind}", json=body, headers=headers, timeout=60)


def _events(answer: httpx.Response) -> list[Any]:
    """The chunks of a stream that has ended as it should."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert last == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def _text(choice: Any) -> str:
    said: str = choice["text"] if "text" in choice else (choice.get("message") or choice["delta"]).get("content") or ""
    return said


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}])
def test_either_header_has_the_key(base: str, headers: Any) -> None:
    assert _ask(base, "completions", headers=headers).status_code == 200
    models = httpx.get(f"{base}/models", headers=headers).json()
    assert (models["object"], models["data"][0]["id"]) == ("list", MODEL)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer tml-nobody"}])
def test_no_key_and_a_wrong_one_are_401(base: str, headers: Any) -> None:
    for answer in (_ask(base, "completions", headers=headers), httpx.get(f"{base}/models", headers=headers)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_every_key_has_the_base_model(base: str) -> None:
    for key in (KEY, OTHER_KEY):
        models = httpx.get(f"{base}/models", headers={"Authorization": f"Bearer {key}"}).json()["data"]
        assert MODEL in [model["id"] for model in models]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_must_be_named_and_be_there(base: str, kind: str) -> None:
    unknown, missing = _ask(base, kind, model="nobody/model"), _ask(base, kind, model=None)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_says_its_model_its_usage_and_its_own_id(base: str, kind: str) -> None:
    answers = [_ask(base, kind, max_tokens=3).json() for _ in range(2)]
    assert len({answer["id"] for answer in answers}) == 2
    for answer in answers:
        (choice,) = answer["choices"]
        usage = answer["usage"]
        assert answer["model"] == MODEL
        assert _text(choice)
        assert 0 < usage["completion_tokens"] <= 3
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_conversation_of_several_turns_is_answered_by_the_assistant(base: str) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello, Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = _ask(base, "chat/completions", messages=turns, temperature=0).json()
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["content"]
    assert answer["usage"]["prompt_tokens"] > _ask(base, "chat/completions").json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_settings_are_taken(base: str, kind: str) -> None:
    settings = {"temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.5, "frequency_penalty": 0.5, "logprobs": True}
    answer = _ask(base, kind, n=3, **settings).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert all(choice["logprobs"] for choice in answer["choices"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_is_not_in_the_text(base: str, kind: str) -> None:
    free = _text(_ask(base, kind, max_tokens=30, temperature=0).json()["choices"][0])
    stop = free[4:6]
    (choice,) = _ask(base, kind, max_tokens=30, temperature=0, stop=[stop]).json()["choices"]
    assert (_text(choice), choice["finish_reason"]) == (free[: free.index(stop)], "stop")


def test_prompts_of_a_batch_have_a_choice_each(base: str) -> None:
    answer = _ask(base, "completions", prompt=["Hello world", "Goodbye world"]).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_of_one_answer_and_ends_with_its_usage(base: str, kind: str) -> None:
    options = {"include_usage": True}
    *chunks, last = _events(_ask(base, kind, stream=True, stream_options=options, max_tokens=10, seed=1))
    whole = _ask(base, kind, max_tokens=10, seed=1).json()
    assert {(chunk["id"], chunk["model"]) for chunk in [*chunks, last]} == {(last["id"], MODEL)}
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert "".join(_text(choice) for chunk in chunks for choice in chunk["choices"]) == _text(whole["choices"][0])
