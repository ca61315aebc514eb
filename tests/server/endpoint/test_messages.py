"""Messages by Anthropic's client: in its blocks, the same streamed as whole, with tools and what they answer."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.chat import Renderer
from cookhouse.server.settings import Settings

Scripted = Callable[..., AbstractContextManager[tuple[openai.OpenAI, ScriptedEngine]]]

ASKED: Any = [{"role": "user", "content": "What is 12 plus 7?"}]
TOOL: Any = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
ANSWER: Any = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "12 and 7 …"}, {"type": "text", "text": "I add."}],
    "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 12}}},
        {"type": "function", "function": {"name": "add", "arguments": {"a": 7}}},
    ],
}


def new_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=60)


def _of(client: openai.OpenAI) -> anthropic.Anthropic:
    return new_client(str(client.base_url).removesuffix("/v1/"))


def _shown(content: list[Any]) -> list[Any]:
    """Blocks without their ids."""
    return [getattr(one, "input", None) or getattr(one, "text", None) or one.thinking for one in content]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thinking_text_and_calls_are_blocks(scripted: Scripted, renderer: Renderer, is_streamed: bool) -> None:
    """Would catch blocks out of order, or with gaps, which the client's own stream refuses, and a call left in text."""
    given: Any = {"model": MODEL, "max_tokens": 2000, "messages": ASKED, "tools": [TOOL]}
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (asked, engine), _of(asked) as client:
        if is_streamed:
            with client.messages.stream(**given) as stream:
                events = [event.type for event in stream]
                answer: Any = stream.get_final_message()
            assert events[0] == "message_start"
            assert events[-1] == "message_stop"
        else:
            answer = client.messages.create(**given)
        prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert [one.type for one in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [one.strip() if isinstance(one, str) else one for one in _shown(answer.content)] == [
        "12 and 7 …",
        "I add.",
        {"a": 12},
        {"a": 7},
    ]
    assert answer.stop_reason == "tool_use"
    assert answer.content[0].signature
    assert len({one.id for one in answer.content[2:]}) == 2
    assert answer.usage.input_tokens == len(engine.requests[0].prompt_T)
    assert answer.usage.output_tokens == len(renderer.build_response([*ASKED, ANSWER]))
    assert '"name": "add"' in prompt


@pytest.mark.parametrize("is_streamed", [False, True])
def test_text_and_calls_are_blocks_in_the_order_in_which_they_were_written(
    scripted: Scripted, renderer: Renderer, is_streamed: bool
) -> None:
    """Would catch text between calls that is stripped or joined, and a call that cannot be read moved to the end."""
    call, broken = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "<tool_call>\n{\n</tool_call>"
    given: Any = {"model": MODEL, "max_tokens": 2000, "messages": ASKED, "tools": [TOOL]}
    tokens = renderer.encoder.encode_with_specials(f"{broken}\nI  add.\n{call}\nAnd\n again. {call} {broken}<|im_end|>")
    with scripted(tokens) as (asked, _), _of(asked) as client:
        if is_streamed:
            with client.messages.stream(**given) as stream:
                answer: Any = stream.get_final_message()
        else:
            answer = client.messages.create(**given)
    shown = [one.strip() if isinstance(one, str) else one for one in _shown(answer.content)]
    assert shown == [f"{broken}\nI  add.", {"a": 1}, "And\n again.", {"a": 1}, broken]


def test_what_was_answered_is_sent_back_with_results(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch the client's own blocks that no longer make up a conversation, and results out of order."""
    with scripted(renderer.build_response([*ASKED, ANSWER])) as (asked, engine), _of(asked) as client:
        first = client.messages.create(model=MODEL, max_tokens=2000, messages=ASKED, tools=[TOOL])
        calls = [block.id for block in first.content if block.type == "tool_use"]
        results: Any = [
            {"type": "tool_result", "tool_use_id": calls[0], "content": [{"type": "text", "text": "12"}]},
            {"type": "tool_result", "tool_use_id": calls[1], "content": "7", "is_error": False},
            {"type": "text", "text": "Now?"},
        ]
        turns: Any = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        client.messages.create(model=MODEL, max_tokens=20, messages=turns, tools=[TOOL])
        prompt = renderer.encoder.decode(engine.requests[1].prompt_T.tolist())
    assert prompt.index("<tool_response>\n12\n") < prompt.index("<tool_response>\n7\n") < prompt.index("Now?")


def test_a_stop_sequence_is_named_and_left_out(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch `end_turn` for an answer that a stop ended, and the stop among its text."""
    with scripted(renderer.encoder.encode(["one END two"])) as (asked, _), _of(asked) as client:
        answer: Any = client.messages.create(model=MODEL, max_tokens=50, messages=ASKED, stop_sequences=["no", "END"])
        cut: Any = client.messages.create(model=MODEL, max_tokens=2, messages=ASKED)
    assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("stop_sequence", "END", "one ")
    assert (cut.stop_reason, cut.stop_sequence) == ("max_tokens", None)


def test_a_limit_over_the_context_is_lowered(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch agents refused that ask for 32,000 tokens in every request."""
    with scripted(renderer.encoder.encode(["Yes."])) as (asked, engine), _of(asked) as client:
        client.messages.create(model=MODEL, max_tokens=20_000, messages=ASKED, system="Be brief.")
        request = engine.requests[0]
    assert request.max_tokens == 4096 - len(request.prompt_T)


def test_an_answer_that_is_begun_goes_on(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch the assistant's last message closed, and another one opened after it."""
    begun: Any = [*ASKED, {"role": "assistant", "content": "It is"}]
    with scripted(renderer.encoder.encode([" 19."])) as (asked, engine), _of(asked) as client:
        answer: Any = client.messages.create(model=MODEL, max_tokens=9, messages=begun)
        prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert prompt.endswith("It is")
    assert answer.content[0].text == " 19."


def test_tokens_are_counted_as_the_model_gets_them(scripted: Scripted, renderer: Renderer) -> None:
    given: Any = {"model": MODEL, "messages": ASKED, "tools": [TOOL], "system": [{"type": "text", "text": "Hm."}]}
    with scripted(renderer.encoder.encode(["Yes."])) as (asked, engine), _of(asked) as client:
        counted = client.messages.count_tokens(**given).input_tokens
        client.messages.create(max_tokens=9, **given)
        assert len(engine.requests) == 1
        assert counted == len(engine.requests[0].prompt_T)


@pytest.mark.parametrize("turn", ["turn1", "turn2"])
def test_recorded_requests_of_claude_code_are_answered(
    shared: Path, scripted: Scripted, renderer: Renderer, turn: str
) -> None:
    """Would catch a field, a role or a block of a program as it is published that is refused."""
    recorded = json.loads((shared / "cases" / "requests" / f"claude-code-2.1.197_{turn}.json").read_text())
    body = recorded["body"] | {"model": MODEL}
    body["tools"] = [tool for tool in body["tools"] if "name" in tool]  # the record has cut the rest
    body["tools"].append({"type": "web_search_20260101", "name": "web_search"})
    body["system"] = [{**block, "text": block["text"][:200]} for block in body["system"]]
    with scripted(renderer.encoder.encode(["Hello."])) as (asked, engine):
        url = str(asked.base_url).removesuffix("/v1/") + recorded["path"]
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        answer = httpx.post(url, json=body, headers=headers, timeout=60)
        prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert answer.status_code == 200, answer.text
    assert "event: message_stop" in answer.text
    assert "Available agent types" in prompt
    assert "web_search" not in prompt
    assert ("recorded-hello" in prompt) == (turn == "turn2")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image are not taken here"),
    ({"messages": [{"role": "user", "content": [{"type": "odd"}]}]}, "'odd' is not read here"),
    ({"messages": [{"role": "robot", "content": "a"}]}, "must be user, assistant or system"),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "a"}]}]},
        "'x' is of no tool_use",
    ),
    (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "y", "name": "add", "input": {}}]},
                {"role": "user", "content": "And?"},
            ]
        },
        "'y' has no tool_result",
    ),
    ({"mcp_servers": [{"url": "http://a"}]}, "mcp_servers is not offered here"),
    ({"odd": 1}, "unknown field 'odd'"),
    ({"max_tokens": 0}, "greater than or equal to 1"),
    ({"tools": [{"name": "add"}]}, "a name and an input_schema"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_what_cannot_be_read_is_refused_in_the_form_of_its_client(
    host: Host, change: dict[str, Any], message: str
) -> None:
    """Would catch an error of OpenAI's form, which Anthropic's client shows as a blob."""
    given: Any = {"model": MODEL, "max_tokens": 5, "messages": ASKED} | change
    with new_client(host.url) as client, pytest.raises(anthropic.BadRequestError) as caught:
        client.post("/v1/messages", body=given, cast_to=object)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert message in body["error"]["message"]
    assert caught.value.request_id


def test_other_refusals_have_their_kinds(host: Host) -> None:
    given: Any = {"max_tokens": 5, "messages": ASKED}
    with new_client(host.url) as client:
        with pytest.raises(anthropic.NotFoundError, match="there is no model 'nobody'"):
            client.messages.create(model="nobody", **given)
        with pytest.raises(anthropic.AuthenticationError, match="ANTHROPIC_API_KEY"):
            client.with_options(api_key="tml-wrong").messages.create(model=MODEL, **given)
    with new_client(f"{host.url}/v1") as client, pytest.raises(anthropic.NotFoundError, match="ends without it"):
        client.messages.create(model=MODEL, **given)


def test_keys_paths_and_probes(host: Host) -> None:
    """Would catch a client that cannot find the server, or whose header of the key is not read."""
    asked: Any = {"model": MODEL, "max_tokens": 2, "messages": ASKED}
    for headers in ({"x-api-key": KEY}, {"Authorization": f"Bearer {KEY}"}):
        for path in ("/v1/models", "/oai/api/v1/models", "/anthropic/api/v1/models"):
            models = httpx.get(host.url + path, headers=headers).json()["data"]
            assert models[0]["max_model_len"] == 2048
        answer = httpx.post(f"{host.url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
        assert answer.status_code == 200
    with new_client(f"{host.url}/anthropic/api") as client:
        assert client.messages.create(**asked).usage.output_tokens == 2
        assert client.models.list().data[0].id == MODEL
    assert httpx.head(host.url).status_code == 200
    assert httpx.get(f"{host.url}/health").content == b""
    assert httpx.get(f"{host.url}/version").json()["version"]


def test_a_request_over_the_limit_is_refused_with_it(tmp_path: Path) -> None:
    """Would catch a limit that one dialect does not keep, or a refusal that its client cannot read."""
    settings = Settings(max_answer_body_bytes=2000)
    with hosted(tmp_path, lambda: ScriptedEngine([[1]]), settings) as host, new_client(host.url) as client:
        with pytest.raises(anthropic.APIStatusError, match="at most 2000 are accepted") as caught:
            client.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "a" * 3000}])
        headers = {"x-api-key": KEY}
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/inference/v1/generate"):
            answer = httpx.post(host.url + path, content=b"[" + b"1," * 2000, headers=headers)
            assert answer.status_code == 413
            assert "at most 2000" in answer.json()["error"]["message"]
    body: Any = caught.value.body
    assert (caught.value.status_code, body["error"]["type"]) == (413, "request_too_large")


@pytest.mark.parametrize("path", ["/v1/messages", "/tokenize"])
def test_pages_may_ask_where_their_origin_is_allowed(host: Host, tmp_path: Path, path: str) -> None:
    """Would catch a browser that gets no answer to its question before the request, or any page let in."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    given = {"Origin": "https://chat.example"}
    with hosted(tmp_path, lambda: ScriptedEngine([[1]]), Settings(allowed_origins=[*given.values()])) as opened:
        before = httpx.options(opened.url + path, headers=given | asked)
        answer = httpx.post(opened.url + path, json={}, headers=given)
        other = httpx.post(opened.url + path, json={}, headers={"Origin": "https://other.example"})
        native = httpx.post(f"{opened.url}/api/v1/create_session", json={}, headers=given)
    assert before.status_code == 200
    assert answer.headers["access-control-allow-origin"] == given["Origin"]
    assert "access-control-allow-origin" not in {*other.headers, *native.headers}
    assert "access-control-allow-origin" not in httpx.post(host.url + path, json={}, headers=given).headers
