"""Every way that Anthropic's client has of asking."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

MODEL = "cookhouse/tiny"
ASKED: Any = [{"role": "user", "content": "Tell me."}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}},
    "required": ["color"],
    "additionalProperties": False,
}
TOOL: Any = {"name": "paint", "description": "Paints.", "input_schema": SCHEMA}
NAMED: Any = {"type": "tool", "name": "paint"}
MESSAGES: dict[str, Any] = {
    "whole": {},
    "content in blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me."}]}]},
    "system": {"system": "Be brief."},
    "system in blocks": {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    "an assistant message last": {"messages": [*ASKED, {"role": "assistant", "content": "One day"}]},
    "stop_sequences": {"stop_sequences": ["e", "a"]},
    "temperature and top_k": {"extra_body": {"temperature": 0.5, "top_k": 4}},
    "thinking, disabled": {"thinking": {"type": "disabled"}},
    "thinking, adaptive": {"thinking": {"type": "adaptive"}},
    "metadata": {"metadata": {"user_id": "somebody"}},
    "output_config, json_schema": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "tools, auto": {"tools": [TOOL]},
    "tools, any": {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "tools, named": {"tools": [TOOL], "tool_choice": NAMED},
    "tools, strict and named": {"tools": [{**TOOL, "strict": True}], "tool_choice": NAMED},
    "tools, none": {"tools": [TOOL], "tool_choice": {"type": "none"}},
}


def fields_of(name: str) -> dict[str, Any]:
    fields = MESSAGES[name]
    has_form = "tool_choice" in fields or "output_config" in fields
    return {"model": MODEL, "messages": ASKED, "max_tokens": 60 if has_form else 8, **fields}


def check(name: str, message: Any) -> None:
    """Fail unless an answer has the form that was asked for."""
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0
    calls = [(block.name, block.input["color"]) for block in message.content if block.type == "tool_use"]
    if name in ("tools, any", "tools, named", "tools, strict and named"):
        assert calls in ([("paint", "red")], [("paint", "blue")])
        assert message.stop_reason == "tool_use"
    else:
        assert not calls
        assert message.stop_reason in ("end_turn", "max_tokens", "stop_sequence")
    if name.startswith("output_config"):
        assert message.content[0].text in ('{"color": "red"}', '{"color": "blue"}')


@pytest.fixture(scope="module")
def client(server: tuple[str, str]) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server[0], api_key=server[1], max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def asynchronous(server: tuple[str, str]) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server[0], api_key=server[1], max_retries=0, timeout=60)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(client: anthropic.Anthropic, name: str) -> None:
    """messages.create"""
    check(name, client.messages.create(**fields_of(name)))


@pytest.mark.parametrize("name", MESSAGES)
def test_streamed_messages(client: anthropic.Anthropic, name: str) -> None:
    """messages.stream"""
    with client.messages.stream(**fields_of(name)) as stream:
        kinds = [event.type for event in stream]
        check(name, stream.get_final_message())
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_raw_events(client: anthropic.Anthropic) -> None:
    """messages.create, streamed as raw events"""
    kinds = [event.type for event in client.messages.create(**fields_of("whole"), stream=True)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_results_of_a_tool(client: anthropic.Anthropic) -> None:
    """messages.create, results of a tool sent back"""
    first: Any = client.messages.create(**fields_of("tools, named"))
    call = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It is painted."}
    turns: Any = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model=MODEL, messages=turns, tools=[TOOL], max_tokens=8)
    assert second.content
    assert second.stop_reason in ("end_turn", "max_tokens")


@pytest.mark.parametrize("name", ["whole", "system", "tools, auto"])
def test_count_tokens(client: anthropic.Anthropic, name: str) -> None:
    """messages.count_tokens"""
    fields = fields_of(name)
    usage = client.messages.create(**fields).usage
    del fields["max_tokens"]
    used = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert client.messages.count_tokens(**fields).input_tokens == used


@pytest.mark.parametrize("name", ["whole", "tools, named"])
def test_async_messages(asynchronous: anthropic.AsyncAnthropic, name: str) -> None:
    """AsyncAnthropic: four messages at once"""

    async def ask() -> Any:
        async with asynchronous as client:
            return await asyncio.gather(*(client.messages.create(**fields_of(name)) for _ in range(4)))

    for message in asyncio.run(ask()):
        check(name, message)


def test_async_stream(asynchronous: anthropic.AsyncAnthropic) -> None:
    """AsyncAnthropic: messages.stream"""

    async def ask() -> Any:
        async with asynchronous as client, client.messages.stream(**fields_of("whole")) as stream:
            return "".join([text async for text in stream.text_stream]), await stream.get_final_message()

    text, message = asyncio.run(ask())
    assert text == message.content[0].text


def test_models(client: anthropic.Anthropic) -> None:
    """models.list"""
    assert MODEL in [model.id for model in client.models.list()]
