"""Items of a response's input and output, as messages of a chat."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.dialects.errors import FieldError

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")
_MAX_SHOWN = 64


def chat_messages(items: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a chat, in order; what the assistant says one after another is one message.

    Raises:
        FieldError: an item cannot be read.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        given = _message(item, f"input.{index}")
        if given["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
            _add(messages[-1], given)
        else:
            messages.append(given)
    return messages


def with_instructions(instructions: str | None, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with all that stands before the first turn as one system message: templates take no more."""
    system = [] if instructions is None else [instructions]
    rest = list(messages)
    while rest and rest[0]["role"] in ("system", "developer"):
        content = rest.pop(0)["content"]
        system.append(content if isinstance(content, str) else "\n".join(part["text"] for part in content))
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if system else rest


def _add(message: dict[str, Any], more: Mapping[str, Any]) -> None:
    message["content"] = [*message["content"], *more["content"]]
    if calls := [*message.get("tool_calls", ()), *more.get("tool_calls", ())]:
        message["tool_calls"] = calls


def _message(item: Mapping[str, Any], field: str) -> dict[str, Any]:
    match item.get("type", "message"):
        case "message":
            return _said(item, field)
        case "function_call":
            return _called(item, item.get("arguments"), field)
        case "custom_tool_call":
            return _called(item, json.dumps({"input": item.get("input")}, ensure_ascii=False), field)
        case "function_call_output" | "custom_tool_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else "\n".join(_texts(output, f"{field}.output"))
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
        case "reasoning":
            written = item.get("content") or item.get("summary") or []
            thinking = "\n".join(_texts(written, f"{field}.summary"))
            parts = [{"type": "thinking", "thinking": thinking}] if thinking else []
            return {"role": "assistant", "content": parts}
        case kind:
            shown = str(kind)[:_MAX_SHOWN]
            raise FieldError(field, f"{field}: an item of type {shown!r} is not read here; send it as a message")


def _said(item: Mapping[str, Any], field: str) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise FieldError(f"{field}.role", f"{field}.role must be one of {', '.join(_ROLES)}")
    texts = [content] if isinstance(content, str) else _texts(content, f"{field}.content")
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def _called(item: Mapping[str, Any], arguments: object, field: str) -> dict[str, Any]:
    name, call_id = item.get("name"), item.get("call_id")
    if not all(isinstance(one, str) for one in (name, call_id, arguments)):
        raise FieldError(field, f"{field}: a call has a call_id, a name and arguments, all of them texts")
    function = {"name": name, "arguments": arguments or "{}"}
    return {
        "role": "assistant",
        "content": [],
        "tool_calls": [{"type": "function", "id": call_id, "function": function}],
    }


def _texts(content: object, field: str) -> list[str]:
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise FieldError(field, f"{field} must be a text or a list of parts")
    texts = []
    for index, part in enumerate(content):
        text = part.get("refusal" if part.get("type") == "refusal" else "text")
        if part.get("type") not in _TEXTS or not isinstance(text, str):
            shown = str(part.get("type"))[:_MAX_SHOWN]
            raise FieldError(f"{field}.{index}", f"{field}.{index}: a part of type {shown!r} is not taken here")
        texts.append(text)
    return texts
