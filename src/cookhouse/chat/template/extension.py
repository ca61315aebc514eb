"""Check that a chat template leaves what it wrote of a turn as it is in the turns after it."""

from collections.abc import Sequence
from typing import Any

from cookhouse.chat.messages import Message, ToolCall
from cookhouse.chat.template.chat_template import ChatTemplate
from cookhouse.chat.template.frames import AnswerStart
from cookhouse.chat.template.probes import TOOL
from cookhouse.errors import InputError

_CALL: ToolCall = {"type": "function", "id": "functions.f:0", "function": {"name": "f", "arguments": {}}}
_USER: Message = {"role": "user", "content": "u"}
_PLAIN: Message = {"role": "assistant", "content": "a"}
_SYSTEM: Message = {"role": "system", "content": "s"}


def extends(
    template: ChatTemplate, start: AnswerStart, *, thinks: bool, writes_calls: bool, declares_tools: bool
) -> bool:
    """True if no turn changes what was written before it, as far as a few conversations show."""
    thought: Any = [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]
    answer: Message = {"role": "assistant", "content": thought if thinks else "a"}
    talks: list[list[Message]] = [[_USER, answer, _USER, answer], [_USER, _PLAIN, _USER, _PLAIN]]
    if writes_calls:
        asking: Message = {**answer, "tool_calls": [_CALL]}
        result: Message = {"role": "tool", "content": "r", "tool_call_id": "functions.f:0", "name": "f"}
        talks.append([_USER, asking, result, answer, _USER, answer])
    if not all(_is_extended(template, start, talk) for talk in talks):
        return False
    moved: list[list[Message]] = [[_SYSTEM, _USER, answer, _USER, answer]]
    if declares_tools:
        moved.append([{"role": "system", "content": "", "tools": [TOOL]}, *talks[1]])
    return all(_is_extended(template, start, talk) for talk in moved if _is_written(template, talk))


def _is_extended(template: ChatTemplate, start: AnswerStart, talk: Sequence[Message]) -> bool:
    try:
        text = template.render(talk)
        answers = [index for index, message in enumerate(talk) if message["role"] == "assistant"]
        return all(text.startswith(template.render(talk[:index], prompt=True) + start.header) for index in answers)
    except InputError:
        return False


def _is_written(template: ChatTemplate, talk: Sequence[Message]) -> bool:
    """True if the template has a form for a conversation, and for its beginning."""
    try:
        return bool(template.render(talk)) and bool(template.render(talk[:2], prompt=True))
    except InputError:
        return False
