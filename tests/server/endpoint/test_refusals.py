"""What cannot be asked: one clear error each, in the form that OpenAI's clients read."""

from typing import Any

import httpx
import openai
import pytest
from tests.server.endpoint.conftest import MODEL, new_client
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.server.settings import Settings

MESSAGES: Any = [{"role": "user", "content": "Hello."}]


def _tool(parameters: Any, **function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters} | function}]}


def _schema(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


CHAT: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 0}, "n", "greater than or equal to 1"),
    ({"n": 129}, "n", "less than or equal to 128"),
    ({"n": True}, "n", "valid integer"),
    ({"max_tokens": 0}, "max_tokens", "must be from 1"),
    ({"max_tokens": 2**31}, "max_tokens", "must be from 1"),
    ({"messages": [{"role": "user", "content": "word " * 10**6}]}, "messages", "letters, of which at most 32"),
    ({"max_tokens": 10**6}, "max_tokens", "max_tokens is 1000000; this model's maximum context length is"),
    ({"max_completion_tokens": 10**6}, "max_completion_tokens", "give at most"),
    ({"messages": [{"role": "user", "content": "word " * 10000}], "max_tokens": 1}, "messages", "shorten it"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "give one of them"),
    ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, "chat_template_kwargs.x", "not offered here"),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking", "valid boolean"),
    ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
    ({"temperature": "hot"}, "temperature", "valid number"),
    ({"top_p": 0}, "top_p", "greater than 0"),
    ({"seed": 2**64}, "seed", "less than"),
    ({"stop": ["a"] * 17}, "stop", "at most 16"),
    ({"stop": [""]}, "stop.0", "at least 1 character"),
    ({"top_logprobs": 3}, "top_logprobs", "go with logprobs=true"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "go with stream=true"),
    ({"stream_options": {"continuous_usage_stats": True}}, "stream_options", "go with stream=true"),
    ({"messages": []}, "messages", "at least 1 item"),
    ({"messages": "hello"}, "messages", "valid array"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages", "message 1: unknown role 'robot'"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages", "message 1: content must be a string"),
    ({"messages": [{"role": "tool", "content": "3", "tool_call_id": "x"}]}, "messages", "no such call"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]},
        "messages.0.content",
        "images are not taken here",
    ),
    ({"messages": [{"role": "system", "content": "", "tools": [{"name": "f"}]}]}, "messages.0.tools", "beside"),
    (_tool("none"), "tools.0.function.parameters", "must be a JSON schema"),
    (_tool({"type": "objekt"}), "tools.0.function.parameters", "is no JSON schema: type"),
    (_tool({"type": "object", "properties": {"a": 3}}), "tools.0.function.parameters", "is no JSON schema"),
    (_tool({"type": "object", "required": "a"}), "tools.0.function.parameters", "is no JSON schema: required"),
    (_tool({"type": "string"}), "tools.0.function.parameters", '"type": "object"'),
    (_tool({}, name="no name"), "tools.0.function.name", "1 to 128 letters"),
    ({"tools": [{"type": "custom"}]}, "tools.0", "must look like"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice", "no such tool is among tools"),
    (_tool({}) | {"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "a call of 'g'"),
    (_tool({}) | {"tool_choice": "must"}, "tool_choice", 'is "auto", "none", "required"'),
    (_tool({}) | {"tool_choice": "required", "ignore_eos": True}, "ignore_eos", "where it ends"),
    ({"add_generation_prompt": False}, "add_generation_prompt", "goes with continue_final_message"),
    ({"frequency_penalty": 2.5}, "frequency_penalty", "less than or equal to 2"),
    ({"logit_bias": {"a": 100}}, "logit_bias", "has 'a', which is no token id"),
    ({"logit_bias": {"a": 1, "b": 1}}, "logit_bias", "has 'a', 'b', which are no token ids"),
    ({"logit_bias": {"1": "much"}}, "logit_bias", "valid number"),
    ({"logit_bias": {"99999": 100}}, "", "the model has tokens below 2048"),
    ({"response_format": {"type": "xml"}}, "response_format", "text, json_object or json_schema"),
    (_schema({"type": "array", "uniqueItems": True}), "response_format.json_schema.schema", "uniqueItems"),
    (_schema({"$ref": "http://127.0.0.1:9/x"}), "response_format.json_schema.schema", "does not fetch resources"),
    (_schema(False), "response_format.json_schema.schema", "nothing fits"),
    (_schema({}) | {"min_tokens": 3}, "min_tokens", "says where that ends"),
    (_schema({}) | {"guided_regex": "a"}, "guided_regex", "both say what the answer is to be"),
    ({"guided_regex": "("}, "guided_regex", "unclosed group"),
    ({"structured_outputs": {"grammar": "start: ("}}, "structured_outputs.grammar", "cannot be followed"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "not offered here"),
    ({"guided_choice": ["a" * 2**18]}, "guided_choice", "it may have 262144"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "do not go with stream=true"),
    ({"prompt_logprobs": 21}, "prompt_logprobs", "less than or equal to 20"),
    ({"reasoning_effort": "l" * 65}, "reasoning_effort", "at most 64"),
    ({"continue_final_message": True}, "continue_final_message", "must be a text of the assistant's"),
    ({"tempratur": 1}, "tempratur", "unknown field 'tempratur'"),
]
COMPLETION: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": []}, "prompt", "give a text"),
    ({"prompt": [[]]}, "prompt", "none of them empty"),
    ({"prompt": [-1]}, "prompt", "token ids"),
    ({"prompt": ["a", 3]}, "prompt", "1 to 1024 texts"),
    ({"prompt": [10**6]}, "", "vocabulary"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", "must be from 1"),
    ({"prompt": "a", "logprobs": 21}, "logprobs", "less than or equal to 20"),
    ({"prompt": "a", "suffix": "b"}, "suffix", "not offered here"),
    ({"prompt": "a", "best_of": 3}, "best_of", "not offered here"),
    ({"prompt": ["a"] * 100, "n": 100}, "n", "more than 1024"),
    ({"prompt": "word " * 10000}, "prompt", "maximum context length"),
    ({"prompt": "word " * 10**6}, "prompt", "5000000 letters, of which at most 32"),
    ({"prompt": "word", "max_tokens": 10**6}, "max_tokens", "give at most"),
]


@pytest.mark.parametrize(("settings", "field", "message"), CHAT)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_that_cannot_be_had(
    client: openai.OpenAI, settings: dict[str, Any], field: str, message: str, is_streamed: bool
) -> None:
    if is_streamed and field == "stream_options":
        return
    body = {"model": MODEL, "messages": MESSAGES, "stream": is_streamed} | settings
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=body, cast_to=object)
    _check(caught.value, field, message)


@pytest.mark.parametrize(("settings", "field", "message"), COMPLETION)
def test_a_completion_that_cannot_be_had(
    client: openai.OpenAI, settings: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/completions", body={"model": MODEL} | settings, cast_to=object)
    _check(caught.value, field, message)


def _check(error: openai.BadRequestError, field: str, message: str) -> None:
    body: Any = error.body
    assert {*body} == {"message", "type", "param", "code"}
    assert body["type"] == "invalid_request_error"
    assert (body["param"] or "").startswith(field)
    assert message in body["message"]


@pytest.mark.parametrize(
    "settings",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s"},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "response_format": {"type": "text"}},
        {"parallel_tool_calls": True, "modalities": ["text"], "stop": None, "n": None, "tools": None, "audio": None},
        {"min_p": 0, "repetition_penalty": 1, "top_logprobs": 0, "stop": "", "stop_token_ids": [], "ignore_eos": False},
        {"parallel_tool_calls": False, "max_completion_tokens": 1, "best_of": 1, "top_k": 0, "stream_options": {}},
    ],
)
def test_what_changes_nothing_is_let_pass(client: openai.OpenAI, settings: dict[str, Any]) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 1} | settings
    assert client.post("/chat/completions", body=body, cast_to=object)


@pytest.mark.parametrize("key", ["tml-unknown", "sk-other"])
def test_a_key_of_nobodys(host: Host, key: str) -> None:
    with (
        new_client(host, key) as client,
        pytest.raises(openai.AuthenticationError, match="set OPENAI_API_KEY") as caught,
    ):
        client.models.list()
    assert caught.value.code == "invalid_api_key"


def test_no_key_at_all_and_no_route(host: Host) -> None:
    assert httpx.get(f"{host.url}/v1/models").status_code == 401
    answer = httpx.get(f"{host.url}/v1/embeddings", headers={"Authorization": f"Bearer {KEY}"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "this server has no GET /v1/embeddings")
    answer = httpx.get(f"{host.url}/v1/completions", headers={"Authorization": f"Bearer {KEY}"})
    assert (answer.status_code, {*answer.json()["error"]}) == (405, {"message", "type", "param", "code"})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": NaN}', b"[" * 5000])
def test_a_body_that_is_none(host: Host, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    for route in ("completions", "chat/completions"):
        answer = httpx.post(f"{host.url}/v1/{route}", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_what_is_too_large_or_too_much(tmp_path: Any) -> None:
    settings = Settings(max_answer_body_bytes=1000, max_queued_samples=0)
    with hosted(tmp_path, lambda: ScriptedEngine([[1]]), settings) as host, new_client(host) as client:
        with pytest.raises(openai.APIStatusError, match="at most 1000 are accepted") as large:
            client.completions.create(model=MODEL, prompt="a" * 1000)
        with pytest.raises(openai.RateLimitError) as many:
            client.completions.create(model=MODEL, prompt="a")
    assert large.value.status_code == 413
    assert (many.value.code, many.value.response.headers["Retry-After"]) == ("rate_limit_exceeded", "1")
