"""Turns of conversations in the forms that other tools write them, as messages; these are checked by `parse_messages`.

- ShareGPT: `{"from": "human" | "gpt" | "system" | "tool" | …, "value": text}`.
- Anthropic's text: turns that begin with `Human:` or `Assistant:` after an empty line.
- OpenAI: role `developer`, and content parts `input_text`, `output_text` and `image_url`.
- Tables: lists and objects as text, in JSON or as Python writes them; nulls for keys that a call or a tool lacks.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cookhouse.data.values import Nulls, cleaned
from cookhouse.errors import InputError, UnknownNameError

SPEAKERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("human", "user"), "user"),
        **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bing", "bard", "function_call"), "assistant"),
        "system": "system",
        **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    }
)
"""What ShareGPT's files call those who speak, as roles. The value of a `function_call` is JSON."""
_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}
_TEXT_PARTS = ("input_text", "output_text")
_BEGINS_AS_TURNS = re.compile(r"\s*(?:\[\s*)?\{")
_NAMES_SPEAKER = re.compile(
    r"""['"](?:role|from)['"]\s*:\s*['"](?:user|assistant|system|developer|tool|human|gpt)['"]"""
)
_CALL = '{"name": …, "arguments": {…}}'


def as_list(value: object, name: str) -> Any:
    """A list that may stand as text, as in CSV, and so may its items; any other value as it is. Raises `InputError` for
    text that begins as a list and is neither JSON nor Python's.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _read(value, name)
    return [_as_object(each, name) for each in value] if isinstance(value, list) else value


def turns_in(text: str, name: str) -> list[Any] | None:
    """The messages that a text is the written form of, as a cell of CSV has them; None for any other text.

    Raises:
        InputError: it begins as messages and is neither JSON nor Python's.
    """
    if not _BEGINS_AS_TURNS.match(text):
        return None
    try:
        read = _read(text, name)
    except InputError:
        if _NAMES_SPEAKER.search(text):
            raise
        return None
    if isinstance(read, dict):
        return [read] if _is_turn(read) and {read.get("role"), read.get("from")} & {*SPEAKERS, "developer"} else None
    return read if read and all(isinstance(turn, dict) and _is_turn(turn) for turn in read) else None


def from_sharegpt(turns: object, nulls: Nulls) -> Any:
    """Turns of `from` and `value`, and messages, as `from_openai` gives them; what is no list as it is."""
    if not isinstance(turns, Sequence) or isinstance(turns, str | bytes):
        return turns
    messages = []
    for index, turn in enumerate(turns, start=1):
        try:
            is_turn = isinstance(turn, Mapping) and turn.get("from") is not None
            messages.append(_message(turn) if is_turn else turn)
        except InputError as error:
            raise InputError(f"message {index}: {error}") from error
    return from_openai(messages, nulls)


def from_dialog(text: str) -> list[dict[str, str]]:
    """The turns of a text that begins with one; none of any other."""
    if not _SPEAKER.match(text):
        return []
    _, *parts = _SPEAKER.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [{"role": _ROLES[speaker], "content": said.strip()} for speaker, said in pairs]


def from_openai(messages: object, nulls: Nulls) -> Any:
    """The messages with the role `system` for `developer`, parts by our names, and calls and tools as objects without
    nulls; anything else as it is.

    Raises:
        InputError: a call or a tool holds what JSON lacks.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        return messages
    return [
        _renamed(message, f"message {number}", nulls) if isinstance(message, Mapping) else message
        for number, message in enumerate(messages, start=1)
    ]


def tools_in(value: object, where: str, nulls: Nulls) -> list[dict[str, Any]]:
    """The tools that a row or a message declares: a list, or text of one, without nulls.

    Raises:
        InputError: it is no list, or a tool holds what JSON lacks.
    """
    tools = as_list(_as_object(value, where), where)
    if not isinstance(tools, list):
        raise InputError(f"{where} must be a list, not {type(tools).__name__}")
    return [cleaned(tool, _named(where, tool), nulls) for tool in tools]


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    speaker, rest = turn["from"], {name: value for name, value in turn.items() if name not in ("from", "value")}
    if speaker not in SPEAKERS:
        raise UnknownNameError("speaker", str(speaker), SPEAKERS)
    if "value" not in turn:
        raise InputError("a turn needs from and value")
    if speaker == "function_call":
        return {"role": "assistant", "content": "", "tool_calls": _calls(turn["value"]), **rest}
    return {"role": SPEAKERS[speaker], "content": turn["value"], **rest}


def _calls(value: object) -> list[dict[str, Any]]:
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InputError(f"a function_call must be JSON, {_CALL}: {error}") from error
    calls: list[Any] = read if isinstance(read, list) else [read]
    if not all(isinstance(call, Mapping) and "name" in call for call in calls):
        raise InputError(f"a function_call must be JSON, {_CALL}")
    return [
        {"type": "function", "function": {"name": call["name"], "arguments": call.get("arguments", {})}}
        for call in calls
    ]


def _renamed(message: Mapping[str, Any], where: str, nulls: Nulls) -> dict[str, Any]:
    if len(message) == 2 and isinstance(message.get("content"), str) and message.get("role") != "developer":
        return dict(message)  # nearly all are, and there may be millions
    renamed = dict(message)
    if message.get("role") == "developer":
        renamed["role"] = "system"
    if isinstance(message.get("content"), Sequence) and not isinstance(message["content"], str):
        renamed["content"] = [_part(part) for part in message["content"]]
    if message.get("tool_calls"):
        calls = as_list(_as_object(message["tool_calls"], f"{where}: tool_calls"), f"{where}: tool_calls")
        is_list = isinstance(calls, list)
        renamed["tool_calls"] = [_call(call, where, nulls) for call in calls] if is_list else calls
    if message.get("tools"):
        renamed["tools"] = tools_in(message["tools"], f"{where}: tools", nulls)
    return renamed


def _call(call: object, where: str, nulls: Nulls) -> object:
    if not isinstance(call, Mapping):
        return call
    function = _as_object(call.get("function"), f"{where}: function")
    if isinstance(function, Mapping) and "arguments" in function and function["arguments"] is None:
        nulls.add(f"{where}: {function.get('name')}")
        function = {**function, "arguments": {}}
    if isinstance(function, Mapping) and not isinstance(function.get("arguments"), str | None):
        arguments = cleaned(function["arguments"], f"{where}: {function.get('name')}", nulls)
        function = {**function, "arguments": arguments}
    return {**call, "function": function}


def _named(where: str, tool: object) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    return f"{where}: {function.get('name')}" if isinstance(function, Mapping) else where


def _is_turn(turn: Mapping[str, Any]) -> bool:
    is_message = isinstance(turn.get("role"), str) and ("content" in turn or "tool_calls" in turn)
    return is_message or (isinstance(turn.get("from"), str) and "value" in turn)


def _as_object(value: object, name: str) -> Any:
    """An object that may stand as text; any other value as it is."""
    is_text = isinstance(value, str) and value.lstrip().startswith("{")
    return _read(str(value), name) if is_text else value


def _read(text: str, name: str) -> Any:
    """JSON, or a literal of Python's. Raises `InputError` for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise InputError(
                f"{name} is text but not JSON: {error}; nor can it be read as Python writes a list. Write such cells "
                "as JSON, or save the rows as JSON Lines"
            ) from error


def _part(part: object) -> object:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping):
        return part
    if kind in _TEXT_PARTS:
        return {**part, "type": "text"}
    if kind == "image_url":
        address = part.get("image_url")
        return {"type": "image", "image": address.get("url") if isinstance(address, Mapping) else address}
    return part
