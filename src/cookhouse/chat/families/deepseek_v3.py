r"""The DeepSeek V3 family: no separators but special tokens, thinking closed by `</think>`.

Written as the template of V3.1; over the tokenizer of the first V3, which has no `</think>`, as that one's template,
which has no think framing (and no tools here: its template leaves a call open). Deliberate differences (otherwise equal
to the templates, token by token):

- A system message after the first others is refused: the template moves it to the front, so that history would change
  with each one.
- Tools are declared after the system message, as the model card has it: the template leaves declaring to the caller.
- An assistant's message right after a system message, or first of all, has its header: the template leaves it out,
  and the answer becomes part of the system text.
- A message that calls tools has the think framing of any other (thinking): the template writes `</think>` before its
  `<think>`.
- A string is split at a block that it opens with, or at `</think>` alone: the template cuts it at any `</think>`.
- A trained answer opens with its reasoning (thinking): the template has no form for it: it is what is sampled after
  the prompt.
- Special tokens' names in content stay plain text: nobody but the renderer may write a mark.
"""

import json
from collections.abc import Sequence
from typing import ClassVar

from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.messages import Message, split_thinking, text_of, with_thinking
from cookhouse.chat.renderer import (
    MessageLayout,
    Renderer,
    Termination,
    ends_open,
    split_at_end,
    split_thinking_block,
)
from cookhouse.chat.tool_calls import CallSection, read_call
from cookhouse.errors import InputError

_BEGIN, _END = Special("<｜begin▁of▁sentence｜>"), Special("<｜end▁of▁sentence｜>")
_USER, _ASSISTANT = Special("<｜User｜>"), Special("<｜Assistant｜>")
_THINK, _END_THINK = Special("<think>"), Special("</think>")
_CALLS, _END_CALLS = Special("<｜tool▁calls▁begin｜>"), Special("<｜tool▁calls▁end｜>")
_CALL, _END_CALL = Special("<｜tool▁call▁begin｜>"), Special("<｜tool▁call▁end｜>")
_SEPARATOR = Special("<｜tool▁sep｜>")
_RESULT, _END_RESULT = Special("<｜tool▁output▁begin｜>"), Special("<｜tool▁output▁end｜>")
_SECTION = CallSection(start=_CALLS, end=_END_CALLS, call=_CALL, separator=_SEPARATOR, end_call=_END_CALL)
_TOOLS_USE: Sequence[Piece] = (
    "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n",
    *(_CALLS, _CALL, "tool_call_name", _SEPARATOR, "tool_call_arguments", _END_CALL),
    "{additional_tool_calls}",
    _END_CALLS,
    "\n\nWhere:\n- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
    "- For multiple tool calls, chain them directly without separators or spaces",
)


class DeepSeekV3Renderer(Renderer):
    """`deepseekv3` and `deepseekv3_disable_thinking`: the models of V3 and V3.1, not thinking. Extension: yes."""

    marks: ClassVar[Sequence[Special]] = (_END, _CALLS, _END_CALLS, _CALL, _END_CALL, _SEPARATOR)
    optional_marks: ClassVar[Sequence[Special]] = (_THINK, _END_THINK)
    template_may_lack_tools: ClassVar[bool] = True
    written_marks: ClassVar[Sequence[Special]] = (_BEGIN, _USER, _ASSISTANT, _RESULT, _END_RESULT)

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._has_thinking = self.encoder.has(_END_THINK)

    def begin(self) -> list[int]:
        return [self.encoder.id_of(_BEGIN)]

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [self._layout_one(messages, index) for index in range(len(messages))]

    def check_trained(self, message: Message) -> None:
        if message["role"] == "assistant" and split_thinking(message)[0]:
            raise InputError(
                "this renderer trains no thinking, and a trained message has some; use deepseekv3_thinking"
            )

    def get_stop_sequences(self) -> list[int]:
        return [self.encoder.id_of(_END)]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END])
        thinking, rest, is_closed = split_thinking_block(body, _THINK, _END_THINK)
        message = _SECTION.read(rest, read_call)
        return with_thinking(thinking or "", message), termination if is_closed else Termination.MALFORMED

    def _layout_assistant(self, messages: Sequence[Message], index: int) -> MessageLayout:
        message = messages[index]
        _, text = split_thinking(message)
        header: list[Piece] = [_ASSISTANT] if has_header(messages, index) else []
        if header and self._has_thinking:
            header.append(_END_THINK)
        return MessageLayout(header=header, output=[text, *_write_calls(message), _END])

    def _layout_one(self, messages: Sequence[Message], index: int) -> MessageLayout:
        message = messages[index]
        self._check_tools(message)
        match message["role"]:
            case "system":
                return _layout_system(messages, index)
            case "user":
                return MessageLayout(header=[_USER], output=[text_of(message)])
            case "tool":
                return MessageLayout(header=[_RESULT], output=[text_of(message), _END_RESULT])
            case _:
                return self._layout_assistant(messages, index)

    def _check_tools(self, message: Message) -> None:
        has_tools = any(message.get(key) for key in ("tools", "tool_calls", "unparsed_tool_calls"))
        if has_tools and not self._has_thinking:
            raise InputError("the first DeepSeek V3 has no form for tools that can be trained on; use V3.1")


class DeepSeekV3ThinkingRenderer(DeepSeekV3Renderer):
    """`deepseekv3_thinking`: V3.1, thinking.

    The prompt ends with `<think>`, so it is never trained; in history an answer has `</think>` in its place and loses
    its reasoning, unless it called tools. Hence there is no extension property. An answer that says nothing of
    reasoning is closed at once by a `</think>` that is not trained; one with an empty thinking part trains it.
    """

    marks: ClassVar[Sequence[Special]] = (*DeepSeekV3Renderer.marks, _THINK, _END_THINK)
    optional_marks: ClassVar[Sequence[Special]] = ()
    thinks = True
    has_extension_property = False

    def check_trained(self, message: Message) -> None:
        """All of a message can be written."""

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        return [_THINK] if ends_open(prompt, _THINK) else []

    def _layout_assistant(self, messages: Sequence[Message], index: int) -> MessageLayout:
        message = messages[index]
        thinking, text = split_thinking(message)
        is_last = index == len(messages) - 1
        keeps_thinking = is_last or bool(thinking and message.get("tool_calls"))
        rest: list[Piece] = [text, *_write_calls(message), _END]
        if not has_header(messages, index):
            block: list[Piece] = [_THINK, thinking, _END_THINK] if keeps_thinking and thinking else []
            return MessageLayout(header=[], output=[*block, *rest])
        if not keeps_thinking:
            return MessageLayout(header=[_ASSISTANT, _END_THINK], output=rest)
        if thinking is None:
            return MessageLayout(header=[_ASSISTANT, _THINK], filler=[_END_THINK], output=rest)
        return MessageLayout(header=[_ASSISTANT, _THINK], output=[thinking, _END_THINK, *rest])


def has_header(messages: Sequence[Message], index: int) -> bool:
    """True if an assistant's message says whose it is: what goes on after a tool's result or an answer does not."""
    return index == 0 or messages[index - 1]["role"] in ("user", "system")


def _layout_system(messages: Sequence[Message], index: int) -> MessageLayout:
    if any(message["role"] != "system" for message in messages[:index]):
        raise InputError(
            f"message {index + 1}: the DeepSeek family takes system messages only before all others; move it there, or "
            "make it a user message"
        )
    message = messages[index]
    pieces: list[Piece] = ["\n\n" if index else "", text_of(message)]
    if message.get("tools"):
        pieces += ["\n\n", *_write_tools(message)]
    return MessageLayout(header=[], output=pieces)


def _write_tools(message: Message) -> list[Piece]:
    text = "## Tools\nYou have access to the following tools:\n\n"
    for tool in message["tools"]:
        function = tool["function"]
        parameters = json.dumps(function.get("parameters", {}), ensure_ascii=False)
        description = function.get("description", "")
        text += f"### {function['name']}\nDescription: {description}\n\nParameters: {parameters}\n\n"
    return [text, *_TOOLS_USE]


def _write_calls(message: Message) -> list[Piece]:
    return _SECTION.write(message, [call["function"]["name"] for call in message.get("tool_calls", ())])
