"""Every way that OpenAI's client has of asking, in versions 2 and 3."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

MODEL = "cookhouse/tiny"
ASKED: Any = [{"role": "user", "content": "Tell me."}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}, "days": {"enum": [1, 2]}},
    "required": ["color", "days"],
    "additionalProperties": False,
}


class Paint(BaseModel):
    color: Literal["red", "blue"]
    days: Literal[1, 2]


def tool(*, strict: bool = False) -> Any:
    return {"type": "function", "function": {"name": "paint", "parameters": SCHEMA, "strict": strict}}


def flat_tool(*, strict: bool = False) -> Any:
    return {"type": "function", "name": "paint", "parameters": SCHEMA, "strict": strict}


NAMED: Any = {"type": "function", "function": {"name": "paint"}}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "paint", "schema": SCHEMA}}
CHATS: dict[str, Any] = {
    "whole": {},
    "n": {"n": 3},
    "stop": {"stop": ["e", "a"]},
    "seed": {"seed": 3},
    "penalties": {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    "logit_bias": {"logit_bias": {"100": -100}},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "an assistant message last": {"messages": [*ASKED, {"role": "assistant", "content": "One day"}]},
    "a developer message": {"messages": [{"role": "developer", "content": "Be brief."}, *ASKED]},
    "content in parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me."}]}]},
    "max_completion_tokens": {"max_tokens": openai.omit, "max_completion_tokens": 8},
    "reasoning_effort": {"reasoning_effort": "low"},
    "json_object": {"response_format": {"type": "json_object"}},
    "json_schema": {"response_format": FORM},
    "json_schema, strict": {"response_format": {**FORM, "json_schema": {**FORM["json_schema"], "strict": True}}},
    "tools, optional": {"tools": [tool()]},
    "tools, required": {"tools": [tool()], "tool_choice": "required", "parallel_tool_calls": False},
    "tools, named": {"tools": [tool()], "tool_choice": NAMED},
    "tools, strict and named": {"tools": [tool(strict=True)], "tool_choice": NAMED},
    "tools, none": {"tools": [tool()], "tool_choice": "none"},
}
"""Fields of a chat; `max_tokens` is 60 where the answer has a form, else 8."""


def fields_of(name: str) -> dict[str, Any]:
    fields = CHATS[name]
    has_form = "response_format" in fields or "tool_choice" in fields
    return {"model": MODEL, "messages": ASKED, "max_tokens": 60 if has_form else 8, **fields}


def check(name: str, text: str, calls: list[tuple[str, str]], reason: str) -> None:
    """Fail unless an answer has the form that was asked for."""
    assert reason in ("stop", "length", "tool_calls")
    if name.startswith("json_schema"):
        Paint.model_validate_json(text)
    if name == "json_object" and reason == "stop":
        assert isinstance(json.loads(text), dict)
    if name in ("tools, required", "tools, named", "tools, strict and named"):
        assert [called for called, _ in calls] == ["paint"]
        Paint.model_validate_json(calls[0][1])
    elif name in ("tools, optional", "tools, none"):
        assert not calls


@pytest.fixture(scope="module")
def client(server: tuple[str, str]) -> Iterator[openai.OpenAI]:
    url, key = server
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def asynchronous(server: tuple[str, str]) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server[0]}/v1", api_key=server[1], max_retries=0, timeout=60)


@pytest.mark.parametrize("name", CHATS)
def test_chat(client: openai.OpenAI, name: str) -> None:
    """chat.completions.create"""
    fields = fields_of(name)
    answer: Any = client.chat.completions.create(**fields)
    assert [choice.index for choice in answer.choices] == [*range(fields.get("n", 1))]
    for choice in answer.choices:
        calls = [(one.function.name, one.function.arguments) for one in choice.message.tool_calls or []]
        check(name, choice.message.content or "", calls, choice.finish_reason)
    if name == "logprobs":
        assert all(len(entry.top_logprobs) == 3 for entry in answer.choices[0].logprobs.content)


@pytest.mark.parametrize("name", CHATS)
def test_streamed_chat(client: openai.OpenAI, name: str) -> None:
    """chat.completions.create, streamed"""
    texts: dict[int, str] = {}
    calls: list[list[str]] = []
    reasons = []
    usage: Any = None
    options: Any = {"include_usage": True}
    for chunk in client.chat.completions.create(stream=True, stream_options=options, **fields_of(name)):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            for one in choice.delta.tool_calls or []:
                if one.id:
                    calls.append([one.function.name, ""])
                calls[one.index][1] += one.function.arguments or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert usage.completion_tokens > 0
    assert len(reasons) == len(texts) == fields_of(name).get("n", 1)
    for index, reason in enumerate(reasons):
        check(name, texts[index], [(called, given) for called, given in calls], reason)


def test_chat_stream_helper(client: openai.OpenAI) -> None:
    """chat.completions.stream, with a class as response_format"""
    with client.chat.completions.stream(model=MODEL, messages=ASKED, response_format=Paint, max_tokens=60) as stream:
        kinds = {event.type for event in stream}
        (choice,) = stream.get_final_completion().choices
    assert isinstance(choice.message.parsed, Paint)
    assert {"chunk", "content.delta", "content.done"} <= kinds


def test_parse(client: openai.OpenAI) -> None:
    """chat.completions.parse, with a class as response_format"""
    answer = client.chat.completions.parse(model=MODEL, messages=ASKED, response_format=Paint, max_tokens=60)
    assert isinstance(answer.choices[0].message.parsed, Paint)


def test_parse_a_tool(client: openai.OpenAI) -> None:
    """chat.completions.parse, with a class as tool"""
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=ASKED,
        tools=[openai.pydantic_function_tool(Paint, name="paint")],
        tool_choice=NAMED,
        max_tokens=60,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Paint)


def test_a_cut_answer_is_the_models(client: openai.OpenAI) -> None:
    """chat.completions.parse, cut by max_tokens: LengthFinishReasonError, as it must be"""
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=ASKED, response_format=Paint, max_tokens=2)


def test_results_of_a_tool(client: openai.OpenAI) -> None:
    """chat.completions.create, results of a tool sent back"""
    first: Any = client.chat.completions.create(**fields_of("tools, named"))
    message = first.choices[0].message
    result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "It is painted."}
    second = client.chat.completions.create(
        model=MODEL, messages=[*ASKED, message, result], tools=[tool()], max_tokens=8
    )
    assert second.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.mark.parametrize("name", ["whole", "json_schema", "tools, named"])
def test_async_chats(asynchronous: openai.AsyncOpenAI, name: str) -> None:
    """AsyncOpenAI: four chats at once"""

    async def ask() -> Any:
        async with asynchronous as client:
            asked = [client.chat.completions.create(**fields_of(name), seed=seed) for seed in range(4)]
            return await asyncio.gather(*asked)

    for answer in asyncio.run(ask()):
        message = answer.choices[0].message
        calls = [(one.function.name, one.function.arguments) for one in message.tool_calls or []]
        check(name, message.content or "", calls, answer.choices[0].finish_reason)


def test_async_stream(asynchronous: openai.AsyncOpenAI) -> None:
    """AsyncOpenAI: chat.completions.create, streamed"""

    async def ask() -> list[Any]:
        async with asynchronous as client:
            stream: Any = await client.chat.completions.create(**fields_of("whole"), stream=True)
            return [chunk async for chunk in stream]

    assert asyncio.run(ask())[-1].choices[0].finish_reason


COMPLETIONS: dict[str, Any] = {
    "whole": {},
    "a batch of texts": {"prompt": ["One day", "Then"]},
    "a batch of tokens": {"prompt": [[100, 101], [102]]},
    "n": {"n": 2},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True},
    "penalties": {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    "logit_bias": {"logit_bias": {"100": -100}},
    "stop": {"stop": "e"},
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions(client: openai.OpenAI, name: str, is_streamed: bool) -> None:
    """completions.create"""
    fields: Any = {"model": MODEL, "prompt": "One day", "max_tokens": 6, **COMPLETIONS[name]}
    answer: Any = client.completions.create(**fields, stream=is_streamed)
    choices = [choice for part in answer for choice in part.choices] if is_streamed else answer.choices
    num = len(fields["prompt"]) if isinstance(fields["prompt"], list) else fields.get("n", 1)
    assert sorted(choice.index for choice in choices if choice.finish_reason) == [*range(num)]
    if name == "logprobs":
        assert any(choice.logprobs and choice.logprobs.top_logprobs for choice in choices)
    if name == "echo":
        assert "".join(choice.text for choice in choices).startswith("One day")


RESPONSES: dict[str, Any] = {
    "whole": {},
    "items as input": {"input": ASKED},
    "instructions": {"instructions": "Be brief."},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "json_schema": {"text": {"format": {"type": "json_schema", "name": "paint", "schema": SCHEMA}}},
    "json_object": {"text": {"format": {"type": "json_object"}}},
    "tools, optional": {"tools": [flat_tool()]},
    "tools, required": {"tools": [flat_tool()], "tool_choice": "required", "parallel_tool_calls": False},
    "tools, named": {"tools": [flat_tool()], "tool_choice": {"type": "function", "name": "paint"}},
    "tools, strict and named": {
        "tools": [flat_tool(strict=True)],
        "tool_choice": {"type": "function", "name": "paint"},
    },
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("name", RESPONSES)
def test_responses(client: openai.OpenAI, name: str, is_streamed: bool) -> None:
    """responses.create, or responses.stream"""
    has_form = "text" in RESPONSES[name] or "tool_choice" in RESPONSES[name]
    fields: Any = {"model": MODEL, "input": "Tell me.", "max_output_tokens": 60 if has_form else 8, **RESPONSES[name]}
    if is_streamed:
        with client.responses.stream(**fields) as stream:
            events: Any = list(stream)
        response: Any = events[-1].response  # the client's own final response is one that was not cut
        assert events[-1].type == f"response.{response.status}"
    else:
        response = client.responses.create(**fields)
    calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
    reason = "length" if response.status == "incomplete" else "stop"
    check(name, response.output_text, calls, reason)


def test_parsed_response(client: openai.OpenAI) -> None:
    """responses.parse, with a class as text_format"""
    response = client.responses.parse(model=MODEL, input="Tell me.", text_format=Paint, max_output_tokens=60)
    assert isinstance(response.output_parsed, Paint)


@pytest.mark.parametrize("is_kept", [True, False], ids=["by previous_response_id", "as items"])
def test_results_in_responses(client: openai.OpenAI, is_kept: bool) -> None:
    """responses.create, results of a tool sent back"""
    choice: Any = {"type": "function", "name": "paint"}
    fields: Any = {"model": MODEL, "tools": [flat_tool()]}
    first: Any = client.responses.create(input=ASKED, tool_choice=choice, max_output_tokens=60, **fields)
    call = next(item for item in first.output if item.type == "function_call")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "It is painted."}
    before: Any = [] if is_kept else [*ASKED, *(item.to_dict() for item in first.output)]
    given: Any = {"previous_response_id": first.id} if is_kept else {}
    second: Any = client.responses.create(input=[*before, result], max_output_tokens=8, **fields, **given)
    assert second.usage.input_tokens > first.usage.input_tokens


def test_models(client: openai.OpenAI) -> None:
    """models.list"""
    assert MODEL in [model.id for model in client.models.list()]
