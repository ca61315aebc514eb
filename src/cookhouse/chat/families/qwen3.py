"""The Qwen3 family: ChatML turns, `<think>` blocks, tools as JSON between tags.

Deliberate differences from the family's chat template (otherwise equal to it, token by token):

- The newline after the last `<|im_end|>` is not written.
- Header and content are tokenized apart, so content that starts with newlines keeps them as tokens of their own.
- Special tokens' names in content stay plain text; in the template a user's `<|im_end|>` or `</tool_response>` is one.
- A user message that looks like a tool response is a user message; only role `tool` is a tool response.
- `<think>…</think>` at the start of an assistant's string is read as thinking, and so is what stands before `</think>`
  alone; a block at another place is text.
- A conversation without any user message has the think block on its last assistant message as any other.
- An empty system message with tools counts as none. A tool call's name is escaped as JSON.
- For Qwen2.5 no default system message is added, and its tokenizer knows `<tool_response>` only as text.
"""

from collections.abc import Sequence
from typing import ClassVar, cast

from tinker.types import ImageChunk

from cookhouse.chat.call_places import AnyCall, calls_in_order, has_places, is_unparsed, write_in_order
from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.messages import Message, ToolCall, UnparsedToolCall, split_thinking, text_of, with_thinking
from cookhouse.chat.renderer import (
    MessageLayout,
    Renderer,
    Termination,
    ends_open,
    split_at_end,
    split_thinking_block,
)
from cookhouse.chat.tool_calls import (
    CALL,
    END_CALL,
    declare_tools,
    read_json_call,
    read_tagged_calls,
    write_json_call,
    write_unparsed,
)
from cookhouse.errors import InputError

_START, _END, _END_OF_TEXT = Special("<|im_start|>"), Special("<|im_end|>"), Special("<|endoftext|>")
_THINK, _END_THINK = Special("<think>"), Special("</think>")
_RESPONSE, _END_RESPONSE = Special("<tool_response>"), Special("</tool_response>")


class Qwen3InstructRenderer(Renderer):
    """`qwen3_instruct`: the 2507 instruct models and Qwen2.5, with no think framing. Extension: yes."""

    marks: ClassVar[Sequence[Special]] = (_END, CALL, END_CALL)
    written_marks: ClassVar[Sequence[Special]] = (_START,)
    optional_marks = (_END_OF_TEXT,)
    optional_written_marks = (_RESPONSE, _END_RESPONSE)

    before_calls = "\n"
    """Between text and the calls after it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._response_tags = [self._tag(_RESPONSE), self._tag(_END_RESPONSE)]

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [self._layout_one(messages, index) for index in range(len(messages))]

    def check_trained(self, message: Message) -> None:
        if message["role"] == "assistant" and split_thinking(message)[0]:
            raise InputError(
                "this renderer trains no thinking, and a trained assistant message has some; remove it, or "
                "use the thinking renderer of the family"
            )

    def get_stop_sequences(self) -> list[int]:
        return [self.encoder.id_of(_END)]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END], _END_OF_TEXT)
        return self.read_text_and_calls(body), termination

    def write_content(self, message: Message) -> Sequence[Piece | ImageChunk]:
        """Content of a message of any role but the assistant's."""
        return [text_of(message)]

    def write_tools(self, message: Message) -> Sequence[Piece]:
        """A system message that declares tools."""
        return declare_tools(message)

    def write_call(self, call: ToolCall) -> str:
        """A call, between its tags."""
        return write_json_call(call)

    def read_call(self, written: str) -> ToolCall:
        """The call that was written between tags. Raises `InputError` if it is none."""
        return read_json_call(written)

    def split(self, message: Message) -> tuple[str | None, str]:
        """Reasoning, None if nothing is said of any, and text, as this family's template takes them apart."""
        thinking, text = split_thinking(message)
        if isinstance(message["content"], str) and thinking is not None and not has_places(message):
            text = text.lstrip("\n")
        return None if thinking is None else thinking.strip("\n"), text

    def write_text_and_calls(self, message: Message, text: str) -> list[Piece]:
        """Pieces of which the first is text."""
        calls = [(letters, self._write_tagged(call)) for letters, call in calls_in_order(message)]
        return write_in_order(text, calls, self.before_calls)

    def read_text_and_calls(self, pieces: Sequence[Piece]) -> Message:
        return read_tagged_calls(pieces, self.read_call, self.before_calls)

    def _write_tagged(self, call: AnyCall) -> list[Piece]:
        if is_unparsed(call):
            return write_unparsed(cast("UnparsedToolCall", call), (CALL, END_CALL))
        return [CALL, self.write_call(cast("ToolCall", call)), END_CALL]

    def _layout_assistant(self, messages: Sequence[Message], index: int, header: list[Piece]) -> MessageLayout:
        text = self.split(messages[index])[1]
        return MessageLayout(header=header, output=[*self.write_text_and_calls(messages[index], text), _END])

    def _layout_one(self, messages: Sequence[Message], index: int) -> MessageLayout:
        message = messages[index]
        role = message["role"]
        if role == "tool":
            return self._layout_tool_result(messages, index)
        header: list[Piece] = ["\n"] if index else []
        header += [_START, f"{role}\n"]
        if role == "assistant":
            return self._layout_assistant(messages, index, header)
        content = self.write_tools(message) if message.get("tools") else self.write_content(message)
        return MessageLayout(header=header, output=[*content, _END])

    def _layout_tool_result(self, messages: Sequence[Message], index: int) -> MessageLayout:
        """Results that follow each other share one user message."""
        is_first = index == 0 or messages[index - 1]["role"] != "tool"
        is_last = index == len(messages) - 1 or messages[index + 1]["role"] != "tool"
        header: list[Piece] = ["\n"] if index else []
        if is_first:
            header += [_START, "user\n"]
        opening, closing = self._response_tags
        output = [opening, "\n", *self.write_content(messages[index]), "\n", closing]
        return MessageLayout(header=header, output=[*output, _END] if is_last else output)

    def _tag(self, mark: Special) -> Piece:
        return mark if self.encoder.has(mark) else str(mark)


class Qwen3Renderer(Qwen3InstructRenderer):
    """`qwen3`: the hybrid models, thinking.

    The answer to the last user message opens with a think block; earlier turns lose theirs, so there is no extension
    property. An answer that says nothing of reasoning has an empty block that is not trained, as it would teach the
    model not to think; one that says there was none, by an empty thinking part or `<think></think>`, trains it. With
    `keep_thinking` every assistant message keeps its block, unlike in the template, and the property holds.
    """

    marks = (*Qwen3InstructRenderer.marks, _THINK, _END_THINK)
    thinks = True
    empty_block_in_prompt = False
    """Whether the prompt ends with a think block of an answer without reasoning."""
    block_opens_in_prompt = False
    """Whether the prompt ends with the beginning of a think block."""

    def __init__(self, tokenizer: Tokenizer, *, keep_thinking: bool = False) -> None:
        super().__init__(tokenizer)
        self.keeps_thinking = keep_thinking
        self.has_extension_property = keep_thinking

    def check_trained(self, message: Message) -> None:
        """All of a message can be written."""

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END], _END_OF_TEXT)
        thinking, rest, is_closed = split_thinking_block(body, _THINK, _END_THINK)
        if thinking is None:
            message = self.read_text_and_calls(rest)
        else:
            message = with_thinking(thinking.strip("\n"), self.read_text_and_calls(_without_newlines(rest)))
        return message, termination if is_closed else Termination.MALFORMED

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        return [_THINK] if ends_open(prompt, _THINK) else []

    def _layout_assistant(self, messages: Sequence[Message], index: int, header: list[Piece]) -> MessageLayout:
        message = messages[index]
        thinking, text = self.split(message)
        said = self.write_text_and_calls(message, text)
        if not self.has_think_block(messages, index, thinking):
            return MessageLayout(header=header, output=[*said, _END])
        opening: list[Piece] = [_THINK, "\n"]
        closing: list[Piece] = [f"{thinking or ''}\n", _END_THINK, "\n\n"]
        rest: list[Piece] = [*_without_newlines(said), _END]
        if self.empty_block_in_prompt and not thinking:
            return MessageLayout(header=[*header, *opening, *closing], output=rest)
        if self.block_opens_in_prompt:
            header, opening = [*header, *opening], []
        if thinking is None:
            return MessageLayout(header=header, filler=[*opening, *closing], output=rest)
        return MessageLayout(header=header, output=[*opening, *closing, *rest])

    def has_think_block(self, messages: Sequence[Message], index: int, thinking: str | None) -> bool:
        """True if an assistant's message is written with a think block."""
        if self.keeps_thinking or index == len(messages) - 1:
            return True
        return bool(thinking) and all(message["role"] != "user" for message in messages[index:])


class Qwen3DisableThinkingRenderer(Qwen3Renderer):
    """`qwen3_disable_thinking`: the hybrid models, not thinking.

    The prompt itself ends with an empty think block, so the block is never trained. Earlier turns have none, so there
    is no extension property.
    """

    thinks = False
    empty_block_in_prompt = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)

    def check_trained(self, message: Message) -> None:
        Qwen3InstructRenderer.check_trained(self, message)


def _without_newlines(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces without the newlines that they begin with."""
    if not pieces or isinstance(pieces[0], Special):
        return list(pieces)
    return [pieces[0].lstrip("\n"), *pieces[1:]]
