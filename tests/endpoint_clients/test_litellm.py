"""Every way that LiteLLM has of asking, over each of its providers that speaks a dialect of ours."""

import asyncio
from typing import Any

import litellm
import pytest
from tests.endpoint_clients.chats import ASKED, CHATS, FORM, NAMED, Paint, check_chat, fields_of, tool

PROVIDERS = ["openai", "anthropic"]


def given(server: tuple[str, str], provider: str) -> dict[str, Any]:
    """Where a provider of LiteLLM finds the server."""
    base = server[0] if provider == "anthropic" else f"{server[0]}/v1"
    model = f"{provider}/cookhouse/tiny"
    return {"model": model, "api_base": base, "api_key": server[1], "timeout": 60, "num_retries": 0}


@pytest.fixture
def asked(server: tuple[str, str]) -> dict[str, Any]:
    return given(server, "openai")


@pytest.mark.parametrize("name", CHATS)
def test_chat(asked: dict[str, Any], name: str) -> None:
    """litellm.completion, openai/MODEL"""
    answer = litellm.completion(**{**fields_of(name), **asked}, allowed_openai_params=["reasoning_effort"])
    check_chat(name, answer)
    if name == "logprobs":
        assert all(len(entry.top_logprobs) == 3 for entry in answer.choices[0].logprobs.content)


@pytest.mark.parametrize("name", [name for name in CHATS if name != "n"])
def test_streamed_chat(asked: dict[str, Any], name: str) -> None:
    """litellm.completion, streamed and put together by stream_chunk_builder, openai/MODEL"""
    fields = {**fields_of(name), **asked}
    chunks = list(litellm.completion(**fields, stream=True, allowed_openai_params=["reasoning_effort"]))
    check_chat(name, litellm.stream_chunk_builder(chunks, messages=fields["messages"]))


OTHERS = ["whole", "stop", "an assistant message last", "json_schema", "tools, optional", "tools, required"]
OTHERS += ["tools, named", "tools, strict and named"]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("provider", PROVIDERS[1:])
@pytest.mark.parametrize("name", OTHERS)
def test_other_providers(server: tuple[str, str], name: str, provider: str, is_streamed: bool) -> None:
    """litellm.completion, PROVIDER/MODEL"""
    fields = {**fields_of(name), **given(server, provider)}
    answer = litellm.completion(**fields, stream=is_streamed)
    if is_streamed:
        answer = litellm.stream_chunk_builder(list(answer), messages=fields["messages"])
    check_chat(name, answer)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_of_a_tool(server: tuple[str, str], provider: str) -> None:
    """litellm.completion, results of a tool sent back"""
    fields = {**fields_of("tools, named"), **given(server, provider)}
    first = litellm.completion(**fields)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "It is painted."}
    fields |= {"messages": [*ASKED, message, result], "max_tokens": 8, "tool_choice": "auto"}
    second = litellm.completion(**fields)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_class(asked: dict[str, Any]) -> None:
    """litellm.completion, with a class as response_format"""
    answer = litellm.completion(**asked, messages=ASKED, response_format=Paint, max_tokens=60)
    Paint.model_validate_json(answer.choices[0].message.content)


@pytest.mark.parametrize("name", ["whole", "json_schema", "tools, named"])
def test_batch(asked: dict[str, Any], name: str) -> None:
    """litellm.batch_completion: three at once"""
    fields = {**fields_of(name), **asked}
    answers = litellm.batch_completion(**{**fields, "messages": [ASKED] * 3})
    assert len(answers) == 3
    for answer in answers:
        check_chat(name, answer)


@pytest.mark.parametrize("name", ["whole", "json_schema", "tools, named"])
def test_async_chats(asked: dict[str, Any], name: str) -> None:
    """litellm.acompletion: four at once"""

    async def ask() -> Any:
        return await asyncio.gather(*(litellm.acompletion(**{**fields_of(name), **asked}) for _ in range(4)))

    for answer in asyncio.run(ask()):
        check_chat(name, answer)


def test_async_stream(asked: dict[str, Any]) -> None:
    """litellm.acompletion, streamed"""

    async def ask() -> list[Any]:
        stream = await litellm.acompletion(**{**fields_of("whole"), **asked}, stream=True)
        return [chunk async for chunk in stream]

    assert asyncio.run(ask())[-1].choices[0].finish_reason


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": 2}, {"echo": True}], ids=str)
def test_text_completion(asked: dict[str, Any], fields: dict[str, Any], is_streamed: bool) -> None:
    """litellm.text_completion"""
    asked["model"] = asked["model"].replace("openai/", "text-completion-openai/")
    answer = litellm.text_completion(**asked, prompt="One day", max_tokens=6, stream=is_streamed, **fields)
    choices = [choice for part in answer for choice in part.choices] if is_streamed else answer.choices
    assert any(choice.text for choice in choices)
    assert any(choice.finish_reason for choice in choices)


RESPONSES: dict[str, Any] = {
    "whole": {},
    "json_schema": {"text": {"format": {"type": "json_schema", **FORM["json_schema"]}}},
    "tools, named": {
        "tools": [{"type": "function", **tool()["function"]}],
        "tool_choice": {"type": "function", **NAMED["function"]},
    },
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("name", RESPONSES)
def test_responses(asked: dict[str, Any], name: str, is_streamed: bool) -> None:
    """litellm.responses"""
    limit = 60 if RESPONSES[name] else 16
    answer = litellm.responses(
        **asked, input="Tell me.", max_output_tokens=limit, stream=is_streamed, **RESPONSES[name]
    )
    response = list(answer)[-1].response if is_streamed else answer
    if name == "json_schema":
        Paint.model_validate_json(response.output_text)
    if name == "tools, named":
        Paint.model_validate_json(response.output[-1].arguments)
    assert response.usage.output_tokens > 0


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_messages(server: tuple[str, str], provider: str) -> None:
    """litellm.anthropic.messages.acreate"""
    ask = litellm.anthropic.messages.acreate(**given(server, provider), messages=ASKED, max_tokens=16)
    answer = asyncio.run(ask)
    assert answer["content"][0]["text"]
    assert answer["usage"]["output_tokens"] > 0
