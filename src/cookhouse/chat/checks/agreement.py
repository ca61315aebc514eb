"""Comparison of what a renderer writes with what the chat template of its model writes."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from cookhouse.chat.messages import Message
from cookhouse.chat.renderer import Renderer
from cookhouse.chat.template.chat_template import ChatTemplate, common_prefix, unguarded
from cookhouse.chat.template.given import CALL_FORMS
from cookhouse.chat.template.sources import has_tool_template
from cookhouse.chat.training_targets import TrainOnWhat
from cookhouse.errors import InputError

_SHOWN = 40
_TOOL_WORDS = ("Weather of a city", "Oslo", "rain")
# Its keys are sorted: some renderers sort them.
_TOOL: dict[str, Any] = {
    "function": {
        "description": "Weather of a city",
        "name": "weather",
        "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"},
    },
    "type": "function",
}
_USER: Message = {"role": "user", "content": "First question?"}
_MORE: Message = {"role": "user", "content": "Second question?"}
_ANSWER: Message = {"role": "assistant", "content": "First answer."}
_THOUGHT: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "Some thoughts."}, {"type": "text", "text": "First answer."}],
}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": "functions.weather:0",
            "function": {"name": "weather", "arguments": {"city": "Oslo"}},
        }
    ],
}
_RESULT: Message = {"role": "tool", "name": "weather", "tool_call_id": "functions.weather:0", "content": "rain"}
_DECLARED: Message = {"role": "system", "content": "Be brief.", "tools": [_TOOL]}

PROBES: Mapping[str, Sequence[Message]] = MappingProxyType(
    {
        "a question": [_USER],
        "a system message": [{"role": "system", "content": "Be brief."}, _USER],
        "several turns": [{"role": "system", "content": "Be brief."}, _USER, _ANSWER, _MORE],
        "reasoning": [_USER, _THOUGHT, _MORE],
        "a declared tool": [_DECLARED, _USER],
        "an answer": [_USER, _ANSWER],
        "a call": [_USER, _CALL, _RESULT],
        "a call of a declared tool": [_DECLARED, _USER, _CALL, _RESULT],
    }
)
"""An answer is sampled after each of these, but for the one that ends with it."""


def difference_from_template(renderer: Renderer) -> str | None:
    """First place where a renderer differs from the tokenizer's chat template, apart from its differences on purpose
    (`Renderer.template_edits`, `Renderer.template_may_lack_tools`); None: nowhere.

    Raises:
        InputError: there is no chat template.
    """
    tokenizer = renderer.encoder.tokenizer
    template_for = cache(lambda declares_tools: ChatTemplate(tokenizer, {}, declares_tools=declares_tools))
    for name, talk in PROBES.items():
        template = template_for(has_tool_template(tokenizer) and any(message.get("tools") for message in talk))
        theirs, ours = _written(template, talk), _ours(renderer, talk)
        if theirs is None:
            is_of_tools = any(word in str(talk) for word in _TOOL_WORDS)
            if ours is None or (is_of_tools and renderer.template_may_lack_tools):
                continue
            return f"{name}: the template has no form for it"
        if ours is None:
            return f"{name}: it has no form for it"
        ours, theirs = (_edited(text, renderer) for text in (ours, theirs))
        if talk[-1]["role"] == "assistant":  # no renderer writes what stands behind the last end
            ours, theirs = ours.rstrip(), theirs.rstrip()
        if ours != theirs:
            at = len(common_prefix(ours, theirs))
            return f"{name}: it writes {ours[at : at + _SHOWN]!r} where the template has {theirs[at : at + _SHOWN]!r}"
    return None


def _ours(renderer: Renderer, talk: Sequence[Message]) -> str | None:
    """Text that the renderer writes; None where it refuses the conversation."""
    try:
        return renderer.encoder.decode(_tokens(renderer, talk))
    except InputError:
        return None


def _tokens(renderer: Renderer, talk: Sequence[Message]) -> list[int]:
    if talk[-1]["role"] == "assistant":
        # This mode trains no answer, so that none is refused for what is trained.
        return renderer.build_supervised_example(talk, TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES)[0].to_ints()
    return renderer.build_generation_prompt(talk).to_ints()


def _written(template: ChatTemplate, talk: Sequence[Message]) -> str | None:
    """Text that the template writes; None where it refuses the conversation, or leaves out what is of tools."""
    words = [word for word in _TOOL_WORDS if any(word in str(message) for message in talk)]
    for form in CALL_FORMS:
        template.give_calls(form)
        try:
            text = unguarded(template.render(talk, prompt=talk[-1]["role"] != "assistant"))
        except InputError:
            continue
        if all(word in text for word in words):
            return text
    return None


def _edited(text: str, renderer: Renderer) -> str:
    for pattern, replacement in renderer.template_edits:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text
