r"""The Kimi K2 family: `<|im_user|>name<|im_middle|>`, content, `<|im_end|>`, a default system message.

Deliberate differences from the family's chat templates (Kimi-K2-Thinking; Kimi-K2-Instruct), otherwise equal to them,
token by token:

- Tools are declared in compact JSON with sorted keys: so the family's own tokenizer code writes them before its
  template sees them.
- The last answer keeps its reasoning (`kimi_k2`): the template drops it once there is an answer: it is what is
  sampled after the prompt.
- An assistant's `name` is not written: the prompt says `assistant`.
- A call whose id is not `functions.NAME:INDEX` gets such a one, counted through the conversation: only from it can
  the name be read again.
- A result names the call that it answers, in order, where it has no `tool_call_id`: the template writes an empty id.
- An empty system message with tools counts as none: that is how tools are declared without one.
- A string that opens with `<think>…</think>`, or has `</think>` alone, is reasoning and text: the template would write
  a second think block.
- Header and content are tokenized apart: so are prompt and answer in sampling; it shows only where content starts
  with a line break after a tool's id.
- Special tokens' names in content stay plain text: nobody but the renderer may write a mark.
"""

import json
from collections.abc import Sequence
from typing import ClassVar

from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import Message, ToolCall, split_thinking, text_of, with_thinking
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

_USER, _ASSISTANT, _SYSTEM = Special("<|im_user|>"), Special("<|im_assistant|>"), Special("<|im_system|>")
_MIDDLE, _END, _END_OF_TEXT = Special("<|im_middle|>"), Special("<|im_end|>"), Special("[EOS]")
_THINK, _END_THINK = Special("<think>"), Special("</think>")
_CALLS, _END_CALLS = Special("<|tool_calls_section_begin|>"), Special("<|tool_calls_section_end|>")
_CALL, _END_CALL = Special("<|tool_call_begin|>"), Special("<|tool_call_end|>")
_ARGUMENTS = Special("<|tool_call_argument_begin|>")
_SECTION = CallSection(start=_CALLS, end=_END_CALLS, call=_CALL, separator=_ARGUMENTS, end_call=_END_CALL)
_DEFAULT_SYSTEM = "You are Kimi, an AI assistant created by Moonshot AI."


class KimiK2InstructRenderer(Renderer):
    """`kimi_k2_instruct`: Kimi-K2-Instruct, with no think framing. Extension: yes."""

    marks: ClassVar[Sequence[Special]] = (_END, _CALLS, _END_CALLS, _CALL, _ARGUMENTS, _END_CALL)
    optional_marks: ClassVar[Sequence[Special]] = (_END_OF_TEXT,)
    written_marks: ClassVar[Sequence[Special]] = (_USER, _ASSISTANT, _SYSTEM, _MIDDLE)
    template_edits: ClassVar[Sequence[tuple[str, str]]] = ((r'([,:]) (?=["{\[])', r"\1"),)
    default_system_end: ClassVar[str] = "\n"
    """What the template writes after the end of a system message that it adds."""

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        ids = _CallIds()
        layouts = []
        for index, message in enumerate(messages):
            written_ids = ids.of(message)
            header: list[Piece] = []
            if message.get("tools"):
                header += [_SYSTEM, "tool_declare", _MIDDLE, _write_tools(message), _END]
            says_nothing = bool(message.get("tools")) and not text_of(message)
            if says_nothing or (index == 0 and message["role"] != "system"):
                header += [_SYSTEM, "system", _MIDDLE, _DEFAULT_SYSTEM, _END, self.default_system_end]
            if says_nothing:
                layouts.append(MessageLayout(header=header, output=[]))
                continue
            header += _write_header(message)
            match message["role"]:
                case "assistant":
                    layouts.append(
                        self._layout_assistant(messages, index, header, _SECTION.write(message, written_ids))
                    )
                case "tool":
                    header.append(f"## Return of {written_ids[0]}\n")
                    layouts.append(MessageLayout(header=header, output=[text_of(message), _END]))
                case _:
                    layouts.append(MessageLayout(header=header, output=[text_of(message), _END]))
        return layouts

    def check_trained(self, message: Message) -> None:
        if message["role"] == "assistant" and split_thinking(message)[0]:
            raise InputError("this renderer trains no thinking, and a trained message has some; use kimi_k2")

    def get_stop_sequences(self) -> list[int]:
        return [self.encoder.id_of(_END)]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END], _END_OF_TEXT)
        return _SECTION.read(body, _read_call), termination

    def _layout_assistant(
        self,
        messages: Sequence[Message],
        index: int,
        header: list[Piece],
        calls: list[Piece],
    ) -> MessageLayout:
        text = split_thinking(messages[index])[1]
        return MessageLayout(header=header, output=[text, *calls, _END])


class KimiK2Renderer(KimiK2InstructRenderer):
    """`kimi_k2`: Kimi-K2-Thinking.

    Every answer opens with a think block, which is empty up to the last answer that calls no tool: no extension
    property. An answer that says nothing of reasoning has an empty block that is not trained; one with an empty
    thinking part trains it.
    """

    marks: ClassVar[Sequence[Special]] = (*KimiK2InstructRenderer.marks, _THINK, _END_THINK)
    default_system_end: ClassVar[str] = ""
    thinks = True
    has_extension_property = False

    def check_trained(self, message: Message) -> None:
        """All of a message can be written."""

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END], _END_OF_TEXT)
        thinking, rest, is_closed = split_thinking_block(body, _THINK, _END_THINK)
        message = _SECTION.read(rest, _read_call)
        return with_thinking(thinking or "", message), termination if is_closed else Termination.MALFORMED

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        return [_THINK] if ends_open(prompt, _THINK) else []

    def _layout_assistant(
        self,
        messages: Sequence[Message],
        index: int,
        header: list[Piece],
        calls: list[Piece],
    ) -> MessageLayout:
        thinking, text = split_thinking(messages[index])
        rest: list[Piece] = [text, *calls, _END]
        if thinking is None or _is_history(messages, index):
            return MessageLayout(header=header, filler=[_THINK, _END_THINK], output=rest)
        return MessageLayout(header=header, output=[_THINK, thinking, _END_THINK, *rest])


class _CallIds:
    """The ids that calls and their results are written with, message by message."""

    def __init__(self) -> None:
        self._num_calls = 0
        self._given: list[str | None] = []
        self._written: list[str] = []
        self._num_results = 0

    def of(self, message: Message) -> list[str]:
        """Ids of a message's calls, or the one that a result answers."""
        if message["role"] == "tool":
            return [self._answered(message)]
        self._given, self._written, self._num_results = [], [], 0
        for call in message.get("tool_calls", ()):
            name, given = call["function"]["name"], call.get("id")
            is_native = given is not None and read_name(given) == name
            self._given.append(given)
            self._written.append(given if given is not None and is_native else f"functions.{name}:{self._num_calls}")
            self._num_calls += 1
        return self._written

    def _answered(self, message: Message) -> str:
        given = message.get("tool_call_id")
        position = self._given.index(given) if given in self._given and given is not None else self._num_results
        self._num_results += 1
        return self._written[position] if position < len(self._written) else given or ""


def read_name(call_id: str) -> str | None:
    """The name in an id such as `functions.search:0`, None if it is not one."""
    head, _, number = call_id.rpartition(":")
    return head.removeprefix("functions.") if head.startswith("functions.") and number.isdecimal() else None


def _is_history(messages: Sequence[Message], index: int) -> bool:
    """True if an answer that calls no tool comes at or after a message, and before the last."""
    return any(
        message["role"] == "assistant" and not message.get("tool_calls") and not message.get("unparsed_tool_calls")
        for message in messages[index:-1]
    )


def _write_header(message: Message) -> list[Piece]:
    role = message["role"]
    if role == "assistant":
        return [_ASSISTANT, role, _MIDDLE]
    return [_USER if role == "user" else _SYSTEM, message.get("name") or role, _MIDDLE]


def _write_tools(message: Message) -> str:
    return json.dumps(message["tools"], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _read_call(call_id: str, arguments: str) -> ToolCall:
    name = read_name(call_id.strip())
    if name is None:
        raise InputError("the id is not of the form functions.NAME:INDEX")
    return {**read_call(name, arguments), "id": call_id.strip()}
