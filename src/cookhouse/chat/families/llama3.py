r"""The Llama 3 family: `<|start_header_id|>role<|end_header_id|>`, a blank line, content, `<|eot_id|>`.

Deliberate differences from the family's chat templates (3.0; 3.1 to 3.3), otherwise equal to them, token by token:

- No `Cutting Knowledge Date: …`, `Today Date: …` in the system message, and none without one (3.1 on): a date that
  the data does not have; write it into the system message to have it.
- Content keeps its outer white space: trimmed, an answer in history would not be the one that was sampled, and a
  parsed one not the one that was rendered.
- Header and content are tokenized apart: so are prompt and answer in sampling; it shows only where content starts
  with a line break.
- Special tokens' names in content stay plain text: nobody but the renderer may write a mark.
- A tool call's name is escaped as JSON, its arguments as JSON text are written as they stand: the template would
  break the JSON, or write it twice.
- A text next to a tool call, or a second call, is refused: the template drops the one and refuses the other.

Tools are those of 3.1 to 3.3: declared in the first user message, results with role `ipython`.
"""

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import Message, ToolCall, split_thinking, text_of
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination, spell, split_at_end
from cookhouse.chat.tool_calls import as_call, read_json, write_arguments
from cookhouse.errors import InputError

_BEGIN, _END_OF_TEXT = Special("<|begin_of_text|>"), Special("<|end_of_text|>")
_START_HEADER, _END_HEADER = Special("<|start_header_id|>"), Special("<|end_header_id|>")
_END, _PYTHON = Special("<|eot_id|>"), Special("<|python_tag|>")
_TOOLS_INTRO = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    'answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n"
)
_MAYBE_CALL = re.compile(r'\s*(\{\s*("(n(a(m(e("(\s*(:.*)?)?)?)?)?)?)?)?)?', re.DOTALL)


class Llama3Renderer(Renderer):
    """`llama3`: Llama 3, 3.1, 3.2 and 3.3 Instruct. Extension: yes. No thinking, no images.

    A call is JSON without marks, so an answer that is exactly one, an object of `name` and `parameters` and nothing
    else, is read as a call; any other JSON is text.
    """

    marks: ClassVar[Sequence[Special]] = (_END,)
    optional_marks: ClassVar[Sequence[Special]] = (_END_OF_TEXT, _PYTHON)
    written_marks: ClassVar[Sequence[Special]] = (_BEGIN, _START_HEADER, _END_HEADER)
    template_may_lack_tools: ClassVar[bool] = True
    template_edits: ClassVar[Sequence[tuple[str, str]]] = (
        (r"Cutting Knowledge Date: [^\n]*\nToday Date: [^\n]*\n\n", ""),
        (r"<\|start_header_id\|>system<\|end_header_id\|>\n\n<\|eot_id\|>", ""),
    )

    def begin(self) -> list[int]:
        return [self.encoder.id_of(_BEGIN)]

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        layouts = []
        declared: str | None = None
        for message in messages:
            header = _header(message["role"])
            if message["role"] == "user" and declared is not None:
                header.append(declared)
                declared = None
            if declared is not None:
                raise InputError("renderer llama3 declares tools in the first user message, which must come next")
            if message.get("tools"):
                declared = _write_tools(message)
            layouts.append(MessageLayout(header=header, output=[*_write_content(message), _END]))
        return layouts

    def check_trained(self, message: Message) -> None:
        if split_thinking(message)[0]:
            raise InputError("renderer llama3 has no form for thinking, and a trained message has some; remove it")

    def get_stop_sequences(self) -> list[int]:
        return [self.encoder.id_of(_END)]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        body, termination = split_at_end(pieces, [_END], _END_OF_TEXT)
        text = spell(body)
        call = _read_call(text.removeprefix(_PYTHON))
        if call is None:
            return {"role": "assistant", "content": text}, termination
        return {"role": "assistant", "content": "", "tool_calls": [call]}, termination

    def settle(self, text: str) -> str:
        return "" if _MAYBE_CALL.fullmatch(text.removeprefix(_PYTHON)) else super().settle(text)


def _header(role: str) -> list[Piece]:
    return [_START_HEADER, "ipython" if role == "tool" else role, _END_HEADER, "\n\n"]


def _write_tools(message: Message) -> str:
    schemas = "".join(f"{json.dumps(tool, ensure_ascii=False, indent=4)}\n\n" for tool in message["tools"])
    return _TOOLS_INTRO + schemas


def _write_content(message: Message) -> list[Piece]:
    _, text = split_thinking(message) if message["role"] == "assistant" else (None, text_of(message))
    calls = message.get("tool_calls", [])
    if message.get("unparsed_tool_calls") or len(calls) > 1 or (calls and text.strip()):
        raise InputError("renderer llama3 writes one tool call to a message, and nothing beside it; split the message")
    if calls:
        function = calls[0]["function"]
        name = json.dumps(function["name"], ensure_ascii=False)
        return [f'{{"name": {name}, "parameters": {write_arguments(function["arguments"])}}}']
    if message["role"] == "tool":
        return [json.dumps(text, ensure_ascii=False)]
    return [f"Environment: ipython\n{text}" if message.get("tools") else text]


def _read_call(text: str) -> ToolCall | None:
    if not _MAYBE_CALL.fullmatch(text):
        return None
    try:
        call = read_json(text)
        if not isinstance(call, dict) or call.keys() != {"name", "parameters"}:
            return None
        return as_call(call["name"], call["parameters"])
    except InputError:  # not JSON, or not a name and an object
        return None
