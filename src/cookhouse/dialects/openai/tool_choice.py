"""The field `tool_choice`: which tools may be called, and whether one has to be."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.dialects.errors import FieldError

_FIELD = "tool_choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    names: frozenset[str]
    """Tools that may be called."""
    is_required: bool = False
    """True if the answer is a call."""
    is_single: bool = False
    """True if it is one call at most."""
    hides_others: bool = False
    """True if the model is not told of tools that it may not call."""


def read_tool_choice(choice: str | Mapping[str, Any] | None, tools: Collection[str]) -> ToolChoice:
    """What a request asks for, whose tools have these names.

    Raises:
        FieldError: it is of no form that there is, or asks for a tool that is not there.
    """
    if choice in (None, "auto"):
        return ToolChoice(names=frozenset(tools))
    if choice == "none":
        return ToolChoice(names=frozenset(), hides_others=True)
    if choice == "required":
        return _some(tools, tools, is_required=True)
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and kind == "function":
        name = _name(choice)
        return _some([name], tools, is_required=True, is_single=True)
    allowed = choice.get("allowed_tools") if isinstance(choice, Mapping) and kind == "allowed_tools" else None
    if isinstance(allowed, Mapping) and allowed.get("mode") in ("auto", "required"):
        listed = allowed.get("tools")
        names = [_name(tool) for tool in listed] if isinstance(listed, list) else []
        return _some(names, tools, is_required=allowed["mode"] == "required", hides_others=True)
    raise FieldError(
        _FIELD,
        'tool_choice is "auto", "none", "required", {"type": "function", "function": {"name": …}} or '
        '{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}',
    )


def _some(names: Collection[str], tools: Collection[str], **fields: bool) -> ToolChoice:
    missing = sorted({*names} - {*tools})
    if not names or missing:
        what = f"of {missing[0][:64]!r}" if missing else "of a tool"
        raise FieldError(_FIELD, f"tool_choice asks for a call {what}, and no such tool is among tools; declare it")
    return ToolChoice(names=frozenset(names), **fields)


def _name(tool: object) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise FieldError(_FIELD, 'tool_choice names a tool by {"type": "function", "function": {"name": …}}')
    return name
