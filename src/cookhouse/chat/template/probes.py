"""The messages that a chat template is learned from, made of words that none writes by itself."""

from typing import Any

from cookhouse.chat.messages import Message, ToolCall
from cookhouse.chat.template.given import short_id

USER, LATER_USER, ANSWER, THOUGHT = "askedaskedasked", "askedagainagain", "answeranswer", "thoughtthought"
NAMES, VALUES = ("firstcallname", "secondcallname"), ("firstvaluetext", "secondvaluetext")
ASKED: Message = {"role": "user", "content": USER}
ASKED_AGAIN: Message = {"role": "user", "content": LATER_USER}
ANSWERED: Message = {"role": "assistant", "content": ANSWER}
THOUGHT_AND_ANSWERED: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}],
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAMES[0],
        "description": "",
        "parameters": {"type": "object", "properties": {"k": {"type": "string"}}},
    },
}


def probe_calls(num: int, *, short_ids: bool) -> list[ToolCall]:
    """The first calls, with ids that say what is called, or of nine letters."""
    made: list[ToolCall] = []
    for index, (name, value) in enumerate(zip(NAMES[:num], VALUES[:num], strict=True)):
        call_id = f"functions.{name}:{index}"
        function: Any = {"name": name, "arguments": {"k": value}}
        made.append({"type": "function", "id": short_id(call_id) if short_ids else call_id, "function": function})
    return made
