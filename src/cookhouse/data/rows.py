"""Rows of a data set to conversations, in the shapes that people have them in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cookhouse.chat import Message, parse_messages, with_tools
from cookhouse.errors import InputError

SHAPES = "messages, prompt + completion, instruction + response, input + output, or instruction (+ input) + output"
_QUESTION_ANSWER = (
    ("prompt", "completion"),
    ("instruction", "response"),
    ("instruction", "output"),
    ("input", "output"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One row: its messages, where it came from, and what else it said."""

    messages: list[Message]
    source: str
    """`file:line` or `row N`, for messages to people."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the row that are no part of the conversation, such as a skill to report by."""


def conversation_from_row(row: object, source: str) -> Conversation:
    """A conversation from one row. A row with `tools` (a list, or JSON text of one) declares them to the model.

    Raises:
        InputError: `source: reason`.
    """
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"a row must be an object, not {type(row).__name__}")
        messages, used = _messages(row)
        if row.get("tools"):
            messages, used = with_tools(messages, _tools(row["tools"])), {*used, "tools"}
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return Conversation(messages=messages, source=source, extra={k: v for k, v in row.items() if k not in used})


def _messages(row: Mapping[str, Any]) -> tuple[list[Message], set[str]]:
    if "messages" in row:
        return parse_messages(row["messages"]), {"messages"}
    for question, answer in _QUESTION_ANSWER:
        if question not in row or answer not in row:
            continue
        asked, answered = _as_messages(row, question, "user"), _as_messages(row, answer, "assistant")
        used = {question, answer}
        if question == "instruction" and row.get("input"):
            if not isinstance(row["input"], str):
                raise InputError(f"input must be a string, not {type(row['input']).__name__}")
            asked[-1]["content"] = f"{asked[-1]['content']}\n\n{row['input']}"
            used.add("input")
        return parse_messages([*asked, *answered]), used
    found = ", ".join(map(str, row)) or "nothing"
    raise InputError(f"no messages: a row needs {SHAPES}; this one has {found}")


def _as_messages(row: Mapping[str, Any], key: str, role: str) -> list[dict[str, Any]]:
    value = row[key]
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list) and value and key in ("prompt", "completion"):
        return [*value]
    raise InputError(f"{key} must be a string, not {type(value).__name__}")


def _tools(value: object) -> list[dict[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"tools is text but not JSON: {error}") from error
    if not isinstance(value, list):
        raise InputError(f"tools must be a list, not {type(value).__name__}")
    return value
