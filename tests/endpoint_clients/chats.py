"""Chats that clients of OpenAI's protocol ask for, and the form that each answer must have."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

MODEL = "cookhouse/tiny"
ASKED: Any = [{"role": "user", "content": "Tell me."}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}, "days": {"enum": [1, 2]}},
    "required": ["color", "days"],
    "additionalProperties": False,
}


class Paint(BaseModel):
    """Paint a wall."""

    model_config = ConfigDict(extra="forbid")  # strict tools need it

    color: Literal["red", "blue"]
    days: Literal[1, 2]


def tool(*, strict: bool = False) -> Any:
    return {"type": "function", "function": {"name": "paint", "parameters": SCHEMA, "strict": strict}}


NAMED: Any = {"type": "function", "function": {"name": "paint"}}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "paint", "schema": SCHEMA}}
CHATS: dict[str, Any] = {
    "whole": {},
    "n": {"n": 3},
    "stop": {"stop": ["e", "a"]},
    "seed": {"seed": 3},
    "penalties": {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    "logit_bias": {"logit_bias": {"100": -100}},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "an assistant message last": {"messages": [*ASKED, {"role": "assistant", "content": "One day"}]},
    "a developer message": {"messages": [{"role": "developer", "content": "Be brief."}, *ASKED]},
    "content in parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me."}]}]},
    "max_completion_tokens": {"max_completion_tokens": 8},
    "reasoning_effort": {"reasoning_effort": "low"},
    "json_object": {"response_format": {"type": "json_object"}},
    "json_schema": {"response_format": FORM},
    "json_schema, strict": {"response_format": {**FORM, "json_schema": {**FORM["json_schema"], "strict": True}}},
    "tools, optional": {"tools": [tool()]},
    "tools, required": {"tools": [tool()], "tool_choice": "required", "parallel_tool_calls": False},
    "tools, named": {"tools": [tool()], "tool_choice": NAMED},
    "tools, strict and named": {"tools": [tool(strict=True)], "tool_choice": NAMED},
    "tools, none": {"tools": [tool()], "tool_choice": "none"},
}
"""Fields of a chat; `max_tokens` is 60 where the answer has a form, else 8."""


def fields_of(name: str) -> dict[str, Any]:
    fields = CHATS[name]
    has_form = "response_format" in fields or "tool_choice" in fields
    limit = {} if "max_completion_tokens" in fields else {"max_tokens": 60 if has_form else 8}
    return {"model": MODEL, "messages": ASKED, **limit, **fields}


def check(name: str, text: str, calls: list[tuple[str, str]], reason: str) -> None:
    """Fail unless an answer has the form that was asked for."""
    assert reason in ("stop", "length", "tool_calls")
    if name.startswith("json_schema"):
        Paint.model_validate_json(text)
    if name == "json_object" and reason == "stop":
        assert isinstance(json.loads(text), dict)
    if name in ("tools, required", "tools, named", "tools, strict and named"):
        assert [called for called, _ in calls] == ["paint"]
        Paint.model_validate_json(calls[0][1])
    elif name in ("tools, optional", "tools, none"):
        assert not calls


def check_chat(name: str, answer: Any) -> None:
    """`check` each choice of an answer in the classes of OpenAI's client."""
    for choice in answer.choices:
        calls = [(one.function.name, one.function.arguments) for one in choice.message.tool_calls or []]
        check(name, choice.message.content or "", calls, choice.finish_reason)
