"""Tools for models whose chat format has none: all that has to do with them is text of the messages."""

import re
from collections.abc import Sequence
from typing import cast

from cookhouse.chat.call_places import AnyCall, calls_in_order, is_unparsed, write_in_order
from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import (
    Message,
    Role,
    ToolCall,
    UnparsedToolCall,
    split_thinking,
    text_of,
    thinking_of,
    with_thinking,
)
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination
from cookhouse.chat.tool_calls import CALL, END_CALL, declare_tools, read_json_call, read_tagged_calls, write_json_call
from cookhouse.errors import InputError

_TAGS = re.compile(f"({re.escape(CALL)}|{re.escape(END_CALL)})")
_GLUE = "\n"


class ToolTextRenderer(Renderer):
    """Another renderer, with tools as text in the form of Hermes: schemas in the system message, a call as JSON between
    `<tool_call>` and `</tool_call>` in the answer, and each result as a user's message.

    The tags are text, which a user can imitate and no token ends. An answer that spells one is refused in training.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.encoder = renderer.encoder
        self._renderer = renderer
        self._marks = renderer._marks
        self.thinks = renderer.thinks
        self.has_extension_property = renderer.has_extension_property

    def begin(self) -> list[int]:
        return self._renderer.begin()

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return self._renderer.layout([_as_text(message) for message in messages])

    def layout_prompt(self, messages: Sequence[Message], role: Role) -> list[MessageLayout]:
        return self._renderer.layout_prompt([_as_text(message) for message in messages], role)

    def end(self, last: Message) -> list[Piece]:
        return self._renderer.end(_as_text(last))

    def check_trained(self, message: Message) -> None:
        if message["role"] == "assistant" and _TAGS.search(text_of(message)):
            raise InputError(f"the answer contains {CALL} or {END_CALL}, the marks around tool calls; remove it")
        self._renderer.check_trained(_as_text(message))

    def get_stop_sequences(self) -> list[str] | list[int]:
        return self._renderer.get_stop_sequences()

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        return self._renderer.read_opening(prompt)

    def settle(self, text: str) -> str:
        text = self._renderer.settle(text)
        begun = next(length for length in range(len(CALL), -1, -1) if text.endswith(CALL[:length]))
        return text[: len(text) - begun].rstrip()

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        message, termination = self._renderer.read_response(pieces)
        parts = _TAGS.split(text_of(message))
        tagged = [Special(part) if _TAGS.fullmatch(part) else part for part in parts if part]
        return with_thinking(thinking_of(message), read_tagged_calls(tagged, read_json_call, _GLUE)), termination


def with_tool_text(renderer: Renderer) -> Renderer:
    """The renderer, with tools as text if it has no form for them."""
    return renderer if renderer.has_tools else ToolTextRenderer(renderer)


def _as_text(message: Message) -> Message:
    if message.get("tools"):
        return {"role": "system", "content": "".join(declare_tools(message))}
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{text_of(message)}\n</tool_response>"}
    if message.get("tool_calls") or message.get("unparsed_tool_calls"):
        return _calls_as_text(message)
    return message


def _calls_as_text(message: Message) -> Message:
    thinking, text = split_thinking(message)
    calls = [(letters, [_call_as_text(call)]) for letters, call in calls_in_order(message)]
    written: Message = {"role": "assistant", "content": "".join(write_in_order(text, calls, _GLUE))}
    return written if thinking is None else with_thinking(thinking, written)


def _call_as_text(call: AnyCall) -> str:
    if is_unparsed(call):
        return cast("UnparsedToolCall", call)["text"]
    return f"{CALL}{write_json_call(cast('ToolCall', call))}{END_CALL}"
