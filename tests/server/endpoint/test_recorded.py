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
from tests.recorded_requests import AGENTS, chat_messages, read_request
from tests.server.endpoint.conftest import MODEL
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.chat import Message, Renderer, parse_messages, text_of
from cookhouse.dialects.openai.chat import given_message

REQUESTS = [f"{agent}_{turn}" for agent in AGENTS for turn in ("turn1", "turn2")] + [
    "opencode-1.18.33_title",
    "smolagents-1.26.0_code_turn2",
    "smolagents-1.26.0_toolcalling_turn1",
    "smolagents-1.26.0_toolcalling_turn2",
]
LAST_EVENTS = {"messages": "message_stop", "responses": "response.completed", "completions": "[DONE]"}


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
    request = read_request(shared, name)
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
    first, second = (_conversation(read_request(shared, f"{agent}_{turn}")["body"]) for turn in ("turn1", "turn2"))
    assert second[: len(first)] == first
    answered, *results = second[len(first) :]
    assert answered["role"] == "assistant"
    assert [call["function"]["name"] for call in answered["tool_calls"]]
    assert all(isinstance(call["function"]["arguments"], dict) for call in answered["tool_calls"])
    ids = [call["id"] for call in answered["tool_calls"]]
    assert [message.get("tool_call_id") for message in results if message["role"] == "tool"] == ids


def _conversation(body: Mapping[str, Any]) -> list[Message]:
    """The messages of a request in any dialect, the arguments of calls as values."""
    messages = parse_messages([given_message(one) for one in chat_messages(body)])
    for message in messages:
        message["content"] = text_of(message)
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = json.loads(arguments) if isinstance(arguments, str) else arguments
    return messages
