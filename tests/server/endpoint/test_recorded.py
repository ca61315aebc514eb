"""Requests as published agents send them: each is answered in its dialect, and the second turn of each goes on from
what was answered in the first.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.chat import Message, Renderer, parse_messages, text_of
from cookhouse.dialects.anthropic.blocks import chat_messages as of_blocks
from cookhouse.dialects.openai.chat import given_message
from cookhouse.dialects.openai.items import chat_messages as of_items

AGENTS = [
    "claude-code-2.1.197",
    "codex-0.171.0",
    "langgraph-1.2.24",
    "mini-swe-agent-2.4.6",
    "openai-agents-0.24.0_chat",
    "openai-agents-0.24.0_responses",
    "opencode-1.18.33",
    "pi-0.73.1",
]
"""Those that send back what they were answered, in whatever spelling."""
REQUESTS = [f"{agent}_{turn}" for agent in AGENTS for turn in ("turn1", "turn2")] + [
    "opencode-1.18.33_title",
    "smolagents-1.26.0_code_turn2",
    "smolagents-1.26.0_toolcalling_turn1",
    "smolagents-1.26.0_toolcalling_turn2",
]
LAST_EVENTS = {"messages": "message_stop", "responses": "response.completed", "completions": "[DONE]"}


def _recorded(shared: Path, name: str) -> dict[str, Any]:
    request: dict[str, Any] = json.loads((shared / "cases" / "requests" / f"{name}.json").read_text())
    # The record names the tools that it has cut.
    tools = [tool for tool in request["body"].get("tools", ()) if "name" in tool or "function" in tool]
    if "tools" in request["body"]:
        request["body"]["tools"] = tools
    return request


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, renderer: Renderer) -> Iterator[Host]:
    """Its model has a context that the programs fit, and calls whatever tool is first."""
    patch = pytest.MonkeyPatch()
    patch.setattr("cookhouse.server.requests.completions.formats.default_renderer", lambda *_, **__: "qwen3")
    said = 'On it.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
    engine = ScriptedEngine([renderer.encoder.encode_with_specials(said)], context=2**17)
    with hosted(tmp_path_factory.mktemp("state"), lambda: engine) as host:
        yield host
    patch.undo()


def test_every_record_is_here(shared: Path) -> None:
    """Would catch a request that was recorded, and that no test sends."""
    recorded = {path.stem for path in (shared / "cases" / "requests").glob("*.json")}
    assert recorded - {*REQUESTS} == {"claude-code-2.1.197_head"}  # of no body


@pytest.mark.parametrize("name", REQUESTS)
def test_a_recorded_request_is_answered(shared: Path, host: Host, name: str) -> None:
    """Would catch a field, an item, a role or a tool of a published program that is refused."""
    request = _recorded(shared, name)
    path, body = request["path"], request["body"] | {"model": MODEL}
    url = host.url + (path if path.startswith("/v1") else f"/v1{path}")
    headers = {"x-api-key": KEY} | ({"anthropic-version": "2023-06-01"} if "messages" in path else {})
    answer = httpx.post(url, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    dialect = path.partition("?")[0].rpartition("/")[2]
    if body.get("stream"):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert LAST_EVENTS[dialect] in answer.text.strip().splitlines()[-1]
    assert "On it." in "".join(re.findall(r'"(?:content|text|delta)": ?"([^"\\]*)"', answer.text))
    assert ("request-id" if dialect == "messages" else "x-request-id") in answer.headers


@pytest.mark.parametrize("agent", AGENTS)
def test_the_second_turn_goes_on_from_the_first(shared: Path, agent: str) -> None:
    """Would catch turns that are read otherwise when they are sent again, so that no prefix is found."""
    first, second = (_conversation(_recorded(shared, f"{agent}_{turn}")["body"]) for turn in ("turn1", "turn2"))
    assert second[: len(first)] == first
    answered, *results = second[len(first) :]
    assert answered["role"] == "assistant"
    assert [call["function"]["name"] for call in answered["tool_calls"]]
    assert all(isinstance(call["function"]["arguments"], dict) for call in answered["tool_calls"])
    ids = [call["id"] for call in answered["tool_calls"]]
    assert [message.get("tool_call_id") for message in results if message["role"] == "tool"] == ids


def _conversation(body: Mapping[str, Any]) -> list[Message]:
    """The messages of a request in any dialect, the arguments of calls as values."""
    given: Any = of_items(body["input"]) if "input" in body else body["messages"]
    if "input" not in body and "max_completion_tokens" not in body and isinstance(body.get("system"), list | str):
        given = of_blocks(body["messages"])
    messages = parse_messages([given_message(one) for one in given])
    for message in messages:
        message["content"] = text_of(message)
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = json.loads(arguments) if isinstance(arguments, str) else arguments
    return messages
