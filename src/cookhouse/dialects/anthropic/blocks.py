"""Messages of content blocks, as messages of a chat."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.dialects.errors import FieldError

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "ctx": "user", "msg": "user"}
"""`ctx` and `msg` are of Claude Code."""
_MAX_SHOWN = 64


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a chat, in order; a result of a tool is a message of its own.

    Raises:
        FieldError: a block cannot be read, or a call and its result do not go together.
    """
    given: list[dict[str, Any]] = []
    calls: set[str] = set()
    """Ids of calls that the next user message has to answer."""
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        role = _ROLES.get(str(message.get("role")))
        if role is None:
            raise FieldError(f"{place}.role", f"{place}.role must be user, assistant or system")
        blocks = _blocks(message.get("content"), f"{place}.content")
        if role == "assistant":
            _check_answered(calls, place)
            given.append(_assistant(blocks, f"{place}.content"))
            calls = {call["id"] for call in given[-1].get("tool_calls", ())}
        else:
            results = {str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
            if role == "user":
                _check_answered(calls - results, place)
            if results - calls:
                name = min(results - calls)[:_MAX_SHOWN]
                raise FieldError(place, f"{place}: tool_use_id {name!r} is of no tool_use of the message before")
            given += _said(role, blocks, f"{place}.content")
            calls = calls if role == "system" else set()
    _check_answered(calls, f"messages.{len(messages)}")
    return given


def _check_answered(calls: set[str], place: str) -> None:
    if calls:
        name = min(calls)[:_MAX_SHOWN]
        raise FieldError(place, f"{place}: tool_use {name!r} has no tool_result in the user message that follows it")


def _blocks(content: object, field: str) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise FieldError(field, f"{field} must be a text or a list of blocks")
    return content


def _assistant(blocks: Sequence[Mapping[str, Any]], field: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                parts.append(_text(block, f"{field}.{index}"))
            case "thinking":
                parts.append({"type": "thinking", "thinking": block.get("thinking")})
            case "redacted_thinking":
                pass  # nobody but its writer can read it
            case "tool_use":
                calls.append(_call(block, f"{field}.{index}"))
            case kind:
                raise _unknown(kind, f"{field}.{index}")
    message: dict[str, Any] = {"role": "assistant", "content": parts or ""}
    return {**message, "tool_calls": calls} if calls else message


def _call(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    name, written, call_id = block.get("name"), block.get("input"), block.get("id")
    if not isinstance(written, Mapping):
        raise FieldError(f"{field}.input", f"{field}.input must be an object")
    if not isinstance(name, str) or not isinstance(call_id, str):
        raise FieldError(field, f"{field}: a tool_use has an id and a name")
    arguments = json.dumps(written, ensure_ascii=False)
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


def _said(role: str, blocks: Sequence[Mapping[str, Any]], field: str) -> list[dict[str, Any]]:
    """What a user or a system says, in the order of its blocks."""
    given: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        if block.get("type") == "tool_result" and role == "user":
            content = result_text(block.get("content"), f"{field}.{index}.content")
            given.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
        elif given and given[-1]["role"] == role:
            given[-1]["content"].append(_text(block, f"{field}.{index}"))
        else:
            given.append({"role": role, "content": [_text(block, f"{field}.{index}")]})
    return given


def result_text(content: object, field: str) -> str:
    """The text of a tool's result, or of a system prompt, whose blocks are lines of it."""
    if content is None:
        return ""
    texts = [_text(block, f"{field}.{index}")["text"] for index, block in enumerate(_blocks(content, field))]
    return "\n".join(texts)


def _text(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    if block.get("type") == "tool_reference":
        return {"type": "text", "text": str(block.get("tool_name", ""))}
    if block.get("type") != "text":
        raise _unknown(block.get("type"), field)
    if not isinstance(text := block.get("text"), str):
        raise FieldError(f"{field}.text", f"{field}.text must be a text")
    return {"type": "text", "text": text}


def _unknown(kind: object, field: str) -> FieldError:
    shown = str(kind)[:_MAX_SHOWN]
    if kind in ("image", "document"):
        return FieldError(field, f"{field}: blocks of type {shown} are not taken here; send their text")
    return FieldError(field, f"{field}: a block of type {shown!r} is not read here; send text, tool_use or tool_result")
