"""Responses by OpenAI's client: in items, the same streamed as whole, and continued from what is kept."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest
from tests.server.endpoint.conftest import MODEL, new_client
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import OTHER_KEY, Host

from cookhouse.chat import Renderer

Scripted = Callable[..., AbstractContextManager[tuple[openai.OpenAI, ScriptedEngine]]]

QUESTION = "What is 12 plus 7?"
ASKED: Any = [{"role": "user", "content": QUESTION}]
TOOL: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": False,
}
ANSWER: Any = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "12 and 7 …"}, {"type": "text", "text": "I add."}],
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 12}}}],
}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thinking_text_and_calls_are_items(scripted: Scripted, renderer: Renderer, is_streamed: bool) -> None:
    """Would catch events out of the order that the client checks, and other items than a whole answer has."""
    given: Any = {"model": MODEL, "input": QUESTION, "tools": [TOOL], "instructions": "Be brief."}
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (client, engine):
        if is_streamed:
            with client.responses.stream(**given) as stream:
                events = list(stream)
                response: Any = stream.get_final_response()
            assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
            assert [event.sequence_number for event in events] == [*range(len(events))]
            text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            assert text == response.output_text
        else:
            response = client.responses.create(**given)
        prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[0].summary[0].text.strip() == "12 and 7 …"
    assert response.output_text.strip() == "I add."
    assert (response.output[2].name, json.loads(response.output[2].arguments)) == ("add", {"a": 12})
    assert response.status == "completed"
    assert response.usage.output_tokens == len(renderer.build_response([*ASKED, ANSWER]))
    assert "Be brief." in prompt
    assert '"name": "add"' in prompt


def test_a_response_goes_on_from_the_one_before(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch calls lost on the way, and instructions that are carried over."""
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (client, engine):
        first: Any = client.responses.create(model=MODEL, input=QUESTION, tools=[TOOL], instructions="Be brief.")
        result: Any = [{"type": "function_call_output", "call_id": first.output[2].call_id, "output": "19"}]
        client.responses.create(model=MODEL, input=result, tools=[TOOL], previous_response_id=first.id)
        prompt = renderer.encoder.decode(engine.requests[1].prompt_T.tolist())
        assert client.responses.retrieve(first.id).output == first.output
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
    assert QUESTION in prompt
    assert prompt.index('"arguments": {"a": 12}') < prompt.index("<tool_response>\n19\n")
    assert "Be brief." not in prompt


def test_the_output_is_sent_back_as_input(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch the client's own items that no longer make up one turn."""
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (client, engine):
        first: Any = client.responses.create(model=MODEL, input=QUESTION, tools=[TOOL], store=False)
        result: Any = {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "19"}
        turns: Any = [*ASKED, *(item.to_dict() for item in first.output), result]
        client.responses.create(model=MODEL, input=turns, tools=[TOOL])
        prompt = renderer.encoder.decode(engine.requests[1].prompt_T.tolist())
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    assert prompt.count("<|im_start|>assistant") == 2
    assert "<tool_response>\n19\n" in prompt
    assert caught.value.code == "previous_response_not_found"


def test_what_is_kept_is_one_keys_and_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a conversation that another key reads, and memory that grows for ever."""
    monkeypatch.setattr("cookhouse.server.requests.completions.kept_responses._MAX_RESPONSES", 2)
    with new_client(host) as client, new_client(host, OTHER_KEY) as other:
        given: Any = {"model": MODEL, "input": "Tell me.", "max_output_tokens": 1}
        ids = [client.responses.create(**given).id for _ in range(3)]
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(ids[2])
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            client.responses.create(**given, previous_response_id=ids[0])
        kept: Any = client.responses.retrieve(ids[2])
    assert kept.status == "incomplete"
    assert kept.incomplete_details.reason == "max_output_tokens"


def test_logprobs_are_those_of_the_chat(host: Host) -> None:
    with new_client(host) as client:
        asked: Any = {"model": MODEL, "temperature": 0.0}
        include: Any = ["message.output_text.logprobs"]
        response: Any = client.responses.create(
            input="Tell me.", max_output_tokens=5, include=include, top_logprobs=2, **asked
        )
        chat: Any = client.chat.completions.create(
            messages=[{"role": "user", "content": "Tell me."}], max_tokens=5, logprobs=True, top_logprobs=2, **asked
        )
    said = [(one.token, one.logprob, len(one.top_logprobs)) for one in response.output[0].content[0].logprobs]
    assert said == [(one.token, one.logprob, len(one.top_logprobs)) for one in chat.choices[0].logprobs.content]


def test_functions_of_a_namespace_are_called_with_it(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch functions that the model never hears of, and calls that no client can place. Of two functions of
    one name the later is left out, as tools are that a server would run.
    """
    inner = [TOOL, TOOL | {"name": "spawn"}, {"type": "custom", "name": "odd"}]
    tools: Any = [TOOL, {"type": "namespace", "name": "agents", "tools": inner}, {"type": "web_search"}]
    calls = [{"type": "function", "function": {"name": name, "arguments": {"a": 1}}} for name in ("spawn", "add")]
    said: Any = {"role": "assistant", "content": "", "tool_calls": calls}
    with scripted(renderer.build_response([*ASKED, said])) as (client, engine):
        first: Any = client.responses.create(model=MODEL, input=ASKED, tools=tools)
        output = [item.to_dict() for item in first.output if item.type == "function_call"]
        results: Any = [{"type": "function_call_output", "call_id": one["call_id"], "output": "1"} for one in output]
        client.responses.create(model=MODEL, input=[*ASKED, *output, *results], tools=tools)
        first_prompt, second_prompt = (renderer.encoder.decode(one.prompt_T.tolist()) for one in engine.requests)
    assert [(one["name"], one.get("namespace")) for one in output] == [("spawn", "agents"), ("add", None)]
    assert first_prompt.count('"name": "spawn"') == first_prompt.count('"name": "add"') == 1
    assert "web_search" not in first_prompt
    assert '"name": "odd"' not in first_prompt
    assert second_prompt.count("<tool_response>") == 2


@pytest.mark.parametrize("include", [None, ["reasoning.encrypted_content"]])
def test_reasoning_has_a_handle_where_that_is_asked_for(scripted: Scripted, renderer: Renderer, include: Any) -> None:
    """Would catch reasoning that a client sends back and nobody finds, and its text in the handle."""
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (client, _):
        given: Any = {"model": MODEL, "tools": [TOOL], "include": include, "store": False}
        first: Any = client.responses.create(input=ASKED, **given)
        again = client.responses.create(input=ASKED, **given)
        item = first.output[0].to_dict()
        handles = [one.output[0].to_dict().get("encrypted_content") for one in (first, again)]
        turns: Any = [*ASKED, item, *(one.to_dict() for one in first.output[1:2]), {"role": "user", "content": "So?"}]
        assert client.responses.create(input=turns, **given).output
    assert (handles == [None, None]) is (include is None)
    if include:
        assert len({*handles}) == 2
        assert "12 and 7" not in handles[0]


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"input": [{"type": "item_reference", "id": "a"}]}, "input.0", "'item_reference' is not read here"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]},
        "input.0.content.0",
        "'input_image' is not taken here",
    ),
    ({"input": [{"role": "robot", "content": "a"}]}, "input.0.role", "must be one of"),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": 3}}, "tool_choice.tools", "must be a list"),
    ({"tools": [TOOL], "tool_choice": {"type": 3}}, "tool_choice.type", "must be function or allowed_tools"),
    ({"input": [{"type": "reasoning", "summary": 3}]}, "input.0.summary", "must be a text or a list"),
    ({"background": True}, "background", "not offered here"),
    ({"odd": 1}, "odd", "unknown field"),
    ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
    ({"input": "word " * 10000}, "messages", "shorten it"),
]


@pytest.mark.parametrize(("change", "field", "message"), BAD)
def test_what_cannot_be_read_is_refused(host: Host, change: dict[str, Any], field: str, message: str) -> None:
    with new_client(host) as client, pytest.raises(openai.BadRequestError, match=message) as caught:
        client.post("/responses", body={"model": MODEL, "input": "a"} | change, cast_to=object)
    assert caught.value.param is not None
    assert caught.value.param.startswith(field)
