"""Messages as OpenAI's clients send them, as `parse_messages` reads them."""

from collections.abc import Mapping
from typing import Any


def given_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message: a developer is a system; an answer that is null, or a refusal, is its text; a call of a tool that
    takes nothing may have empty arguments. Whatever else is wrong is left for `parse_messages` to refuse.
    """
    if message.get("role") == "developer":
        return {**message, "role": "system"}
    if message.get("role") != "assistant":
        return dict(message)
    known = {**message, "content": _content(message.get("content"), message.get("refusal"))}
    if isinstance(known.get("refusal"), str):
        del known["refusal"]
    if isinstance(calls := known.get("tool_calls"), list):
        known["tool_calls"] = [_call(call) for call in calls]
    return known


def _content(content: object, refusal: object) -> object:
    if isinstance(content, list):
        return [_part(part) for part in content]
    said = refusal if isinstance(refusal, str) else ""
    return said if content is None or content == "" else content


def _part(part: object) -> object:
    if isinstance(part, dict) and part.get("type") == "refusal" and set(part) == {"type", "refusal"}:
        return {"type": "text", "text": part["refusal"]}
    return part


def _call(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or function.get("arguments") != "":
        return call
    return {**call, "function": {**function, "arguments": "{}"}}
