"""Writing and reading tool calls, as far as families share it."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.chat.call_places import AnyCall, answer, read_in_order
from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import Message, ToolCall, UnparsedToolCall, text_of
from cookhouse.chat.renderer import spell, split_at
from cookhouse.errors import InputError

CALL, END_CALL = Special("<tool_call>"), Special("</tool_call>")
"""Around a call as Hermes, Qwen and many others write it."""
_MAX_LEVELS = 100  # further down, nothing else that reads or writes a call could take it
_TOOLS_INTRO = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_USE: Sequence[Piece] = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ",
    *(CALL, END_CALL, " XML tags:\n", CALL),
    '\n{"name": <function-name>, "arguments": <args-json-object>}\n',
    END_CALL,
)


def declare_tools(message: Message) -> Sequence[Piece]:
    """Text of a system message that declares tools, as Hermes and Qwen have it."""
    text = text_of(message)
    schemas = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in message["tools"])
    return [f"{text}\n\n" if text else "", _TOOLS_INTRO, schemas, *_TOOLS_USE]


def write_json_call(call: ToolCall) -> str:
    """A call as one JSON object, between its tags."""
    name = json.dumps(call["function"]["name"], ensure_ascii=False)
    return f'\n{{"name": {name}, "arguments": {write_arguments(call["function"]["arguments"])}}}\n'


def read_json_call(written: str) -> ToolCall:
    """The call that was written between tags. Raises `InputError` if it is none."""
    call = read_json(written)
    if not isinstance(call, dict):
        raise InputError("not an object with a name")
    return as_call(call.get("name"), call.get("arguments"))


def read_tagged_calls(pieces: Sequence[Piece], read: Callable[[str], ToolCall], glue: str) -> Message:
    """The text and calls of a response, each call between tags; `read` makes one of what stands there, or raises
    `InputError`. `glue` stands between the text and the calls after it. No white space that a family leaves out around
    an answer may be in the pieces, as calls in the text are placed by its letters.
    """
    calls: list[AnyCall] = []
    before, rest, is_call = split_at(pieces, CALL)
    texts = [spell(before)]
    while is_call:
        inside, rest, is_closed = split_at(rest, END_CALL)
        try:
            if not is_closed:
                raise InputError("the call is not closed by </tool_call>")
            calls.append(read(spell(inside)))
        except InputError as error:
            calls.append({"text": _written(CALL, inside, END_CALL if is_closed else ""), "error": str(error)})
        before, rest, is_call = split_at(rest, CALL)
        texts.append(spell(before))
    return read_in_order(texts, calls, glue)


def write_unparsed(call: UnparsedToolCall, marks: Collection[Special]) -> list[Piece]:
    """A call that nobody can read, as it was written: in its text the names of `marks` are marks again."""
    parts = re.split(f"({'|'.join(map(re.escape, marks))})", call["text"])
    return [Special(part) if part in marks else part for part in parts if part]


def _written(start: Special, inside: Sequence[Piece], end: str) -> str:
    return f"{start}{spell(inside)}{end}"


def write_arguments(arguments: dict[str, Any] | str) -> str:
    """Arguments as JSON; those given as JSON text stay as they are."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def read_call(name: str, arguments: str) -> ToolCall:
    """A call of a name and the JSON of its arguments.

    Raises:
        InputError: they are not JSON, or no object.
    """
    return as_call(name, read_json(arguments))


def read_json(written: str) -> Any:
    """Read what a model wrote as JSON. Raises `InputError` if it is none, or nested deeper than tools can want."""
    try:
        value = json.loads(written, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error
    if not _is_nested_within(_MAX_LEVELS, value):
        raise InputError(f"JSON of more than {_MAX_LEVELS} levels")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no value of JSON")


def _is_nested_within(levels: int, value: object) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_nested_within(levels - 1, item) for item in inner)


def as_call(name: object, arguments: object) -> ToolCall:
    """A call of what was written. Raises `InputError` if that is no name, or no object of arguments."""
    if not isinstance(name, str) or not name:
        raise InputError("not an object with a name")
    if not isinstance(arguments, dict):
        raise InputError("arguments is not an object")
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSection:
    """Calls as one section of marks at the end of a message, each a label (name or id) and arguments."""

    start: Special
    end: Special
    call: Special
    separator: Special
    end_call: Special

    def write(self, message: Message, labels: Sequence[str]) -> list[Piece]:
        """The calls of a message, one label for each; unreadable ones as they were."""
        pieces: list[Piece] = []
        for call, label in zip(message.get("tool_calls", ()), labels, strict=True):
            arguments = write_arguments(call["function"]["arguments"])
            pieces += [self.call, label, self.separator, arguments, self.end_call]
        for unparsed in message.get("unparsed_tool_calls", ()):
            pieces += write_unparsed(unparsed, (self.call, self.separator, self.end_call))
        return [self.start, *pieces, self.end] if pieces else []

    def read(self, pieces: Sequence[Piece], read: Callable[[str, str], ToolCall]) -> Message:
        """The text and calls of a response; `read` makes a call of a label and arguments, or raises `InputError`."""
        before, rest, is_there = split_at(pieces, self.start)
        if not is_there:
            return answer(spell(before), (), ())
        inside, after, _ = split_at(rest, self.end)
        calls: list[ToolCall] = []
        unparsed: list[UnparsedToolCall] = []
        while inside:
            between, inside, is_call = split_at(inside, self.call)
            if spell(between).strip():
                unparsed.append({"text": spell(between), "error": f"not between {self.call} and {self.end_call}"})
            if not is_call:
                break
            written, inside, is_closed = split_at(inside, self.end_call)
            label, arguments, is_separated = split_at(written, self.separator)
            try:
                if not is_closed or not is_separated:
                    raise InputError(f"the call has no {self.separator if is_closed else self.end_call}")
                calls.append(read(spell(label), spell(arguments)))
            except InputError as error:
                text = _written(self.call, written, self.end_call if is_closed else "")
                unparsed.append({"text": text, "error": str(error)})
        return answer(spell(before) + spell(after), calls, unparsed)
