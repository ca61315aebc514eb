"""Requests as published agents sent them, recorded with their long texts cut."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cookhouse.dialects.anthropic.blocks import chat_messages as of_blocks
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
"""Programs that send back the answers that they got, in whatever spelling."""


def read_request(shared: Path, name: str) -> dict[str, Any]:
    """The `path` and the `body` of a request, without the tools that the record has cut."""
    request: dict[str, Any] = json.loads((shared / "cases" / "requests" / f"{name}.json").read_text())
    body = request["body"]
    if "tools" in body:
        body["tools"] = [tool for tool in body["tools"] if "name" in tool or "function" in tool]
    return request


def chat_messages(body: Mapping[str, Any]) -> Any:
    """The messages of a body of any dialect, in the form of a chat."""
    if "input" in body:
        return of_items(body["input"])
    return of_blocks(body["messages"]) if "system" in body else body["messages"]
