r"""Qwen3.5: the turns and images of Qwen3-VL, with tool calls as XML and a prompt that opens the think block.

Deliberate differences from the family's chat template, otherwise equal to it, token by token:

- The newline after the last `<|im_end|>` is not written: nothing is sampled after the mark.
- An empty think block that the prompt opens is `\n` and `\n`, in the template one token `\n\n`: it is sampled after the
  first of them.
- Special tokens' names in content stay plain text: nobody but the renderer may write a mark.
- A user message that looks like a tool response is a user's: only role `tool` is a tool's.
- `<think>…</think>` at the start of an assistant's string is reasoning, otherwise it is text: the template drops what
  stands before `<think>`. What stands before `</think>` alone is reasoning, as there.
- Without a user message, answers have think blocks as any other: the template refuses such a conversation.

As in the template, content loses its outer white space, and a system message stands first or not at all. The types of
arguments are not written, so that one is read as what is written alike: `5` and `"5"` come back as a number.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from tinker.types import ImageChunk

from cookhouse.chat.call_places import has_places
from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.families.qwen3 import Qwen3InstructRenderer
from cookhouse.chat.families.qwen3_vl import Qwen3VLRenderer
from cookhouse.chat.messages import Message, ToolCall, text_of, thinking_of, with_thinking
from cookhouse.chat.renderer import MessageLayout, Termination
from cookhouse.chat.tool_calls import as_call, read_json
from cookhouse.errors import InputError

_CALL, _END_CALL = Special("<tool_call>"), Special("</tool_call>")
_TOOLS_INTRO = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
_TOOLS_USE: Sequence[Piece] = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n",
    _CALL,
    "\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n",
    _END_CALL,
    "\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner <function=...></function> "
    "block must be nested within ",
    *(_CALL, _END_CALL),
    " XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning for your function call in"
    " natural language BEFORE the function call, but NOT after\n- If there is no function call available, answer the"
    " question like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>",
)
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\n?(.*?)\s*</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|$))", re.DOTALL)
_CONSTANTS = {"True": True, "False": False, "None": None}


class Qwen35Renderer(Qwen3VLRenderer):
    """`qwen3_5`: thinking. Each answer to the last user message has a think block, which the prompt opens.

    Earlier turns lose theirs, so there is no extension property; `qwen3_5_preserve_thinking` keeps them, and has it. An
    answer that says nothing of reasoning closes the block at once, which is not trained; one with an empty thinking
    part trains it.
    """

    before_calls = "\n\n"

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        for index, message in enumerate(messages):
            if index and message["role"] == "system":
                raise InputError(
                    f"message {index + 1} is a system message, which Qwen3.5 has only as the first; move it there, or "
                    "make it a user message"
                )
        return super().layout(messages)

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        message, termination = super().read_response(pieces)
        thinking = thinking_of(message).strip()
        return with_thinking(thinking, {**message, "content": text_of(message)}), termination

    def read_text_and_calls(self, pieces: Sequence[Piece]) -> Message:
        message = super().read_text_and_calls(cast("list[Piece]", _trimmed(pieces)))
        return message if has_places(message) else {**message, "content": text_of(message).strip()}

    def write_content(self, message: Message) -> Sequence[Piece | ImageChunk]:
        return _trimmed(super().write_content(message))

    def write_tools(self, message: Message) -> Sequence[Piece]:
        text = text_of(message).strip()
        schemas = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in message["tools"])
        return [_TOOLS_INTRO, schemas, *_TOOLS_USE, f"\n\n{text}" if text else ""]

    def split(self, message: Message) -> tuple[str | None, str]:
        thinking, text = super().split(message)
        return None if thinking is None else thinking.strip(), text if has_places(message) else text.strip()

    def has_think_block(self, messages: Sequence[Message], index: int, thinking: str | None) -> bool:  # noqa: ARG002
        return self.keeps_thinking or all(message["role"] != "user" for message in messages[index:])

    def write_call(self, call: ToolCall) -> str:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = _parse_arguments(arguments)
        parameters = "".join(
            f"<parameter={name}>\n{_write_value(value)}\n</parameter>\n" for name, value in arguments.items()
        )
        return f"\n<function={call['function']['name']}>\n{parameters}</function>\n"

    def read_call(self, written: str) -> ToolCall:
        function = _FUNCTION.fullmatch(written)
        if function is None:
            raise InputError("not a <function=name> block")
        arguments: dict[str, Any] = {}
        position = 0
        while parameter := _PARAMETER.match(function[2], position):
            arguments[parameter[1]] = _read_value(parameter[2])
            position = parameter.end()
        if function[2][position:].strip():
            raise InputError("not <parameter=name> blocks alone in the function")
        return as_call(function[1], arguments)


class Qwen35DisableThinkingRenderer(Qwen35Renderer):
    """`qwen3_5_disable_thinking`: the prompt itself ends with an empty think block, so that it is never trained.

    Earlier turns have none, so there is no extension property.
    """

    thinks = False
    empty_block_in_prompt = True
    block_opens_in_prompt = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)

    def check_trained(self, message: Message) -> None:
        Qwen3InstructRenderer.check_trained(self, message)


def preserve_thinking(tokenizer: Tokenizer) -> Qwen35Renderer:
    """`qwen3_5_preserve_thinking`: every answer keeps its think block, unlike in the template."""
    return Qwen35Renderer(tokenizer, keep_thinking=True)


def _trimmed(pieces: Sequence[Piece | ImageChunk]) -> list[Piece | ImageChunk]:
    """Content without white space at its ends, an image being none."""
    joined: list[Piece | ImageChunk] = []
    for piece in pieces:
        if joined and all(isinstance(p, str) and not isinstance(p, Special) for p in (joined[-1], piece)):
            joined[-1] = f"{joined[-1]}{piece}"
        else:
            joined.append(piece)
    for index, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if joined and isinstance(joined[index], str) and not isinstance(joined[index], Special):
            joined[index] = strip(str(joined[index]))
    return joined


def _parse_arguments(written: str) -> dict[str, Any]:
    try:
        arguments = read_json(written)
    except InputError as error:
        raise InputError(f"the arguments of a tool call are {error}; Qwen3.5 writes their members apart") from error
    if not isinstance(arguments, dict):
        raise InputError("the arguments of a tool call are no JSON object, whose members Qwen3.5 writes apart")
    return arguments


def _write_value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _read_value(written: str) -> object:
    """A number, an object, a list or a constant, in JSON's spelling or in Python's; anything else is text."""
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    try:
        return read_json(written)
    except InputError:
        return written
