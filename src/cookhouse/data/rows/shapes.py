"""Rows of a data set to conversations, in the shapes that people have them in.

What a row says besides its conversation follows one rule:

- `system` (or `system_prompt`) and `tools` are read in every shape, `history` in all but `messages`, and `input` or
  `context` with `instruction`.
- A field by which people or other tools write part of a conversation, and that is not read in the row's shape, is
  refused by name where it has a value: `REFUSED`, a `label` of true or false, and the fields of the other shapes.
- Beside `messages` and `conversations` the fields of the other shapes are copies of what those say, as data sets on the
  hub keep them (`prompt` in no_robots), and are not read.
- `text` is plain text, trained on as it stands, without a chat format; a question or an answer next to it is refused.
- The case of fields is no matter to a row that has none as they are written here.
- `conversations` is ShareGPT's: turns of `from` and `value`, or messages. Lists may be text, as in CSV: JSON, or as
  Python writes them.
- Of a field that every row of a table has, and this one has no value for, nothing is said.
- Every other field is metadata: no part of what is trained on, and kept as `Conversation.extra`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cookhouse.chat import MEDIA_KEYS, REASONING_KEYS, Message, is_empty, parse_messages, text_of
from cookhouse.data.rows.names import CONVERSATIONS, in_our_case, offer
from cookhouse.data.rows.reader import BESIDE, MATERIAL, SYSTEM, RowReader
from cookhouse.data.values import LeftOut
from cookhouse.errors import InputError

SHAPES = (
    "messages, conversations, prompt + completion, instruction (+ input or context) + response or output, input + "
    "output, or text"
)
_LISTS = ("messages", "conversations")
"""Fields that hold a whole conversation, the first that there is being read."""
_QUESTION_ANSWER = (
    ("prompt", "completion"),
    ("instruction", "response"),
    ("instruction", "output"),
    ("input", "output"),
)
_OF_SHAPES = tuple(dict.fromkeys([*(name for pair in _QUESTION_ANSWER for name in pair), *MATERIAL]))
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(REASONING_KEYS, "give it as `thinking` on the message of the assistant that it belongs to"),
        **dict.fromkeys(MEDIA_KEYS, "give an image as a part of a message's content"),
        **dict.fromkeys(("weight", "weights"), "rows count alike; repeat the ones that are to count more"),
        "context": "put it into a message",
        "documents": "put them into a message",
        "functions": "use `tools`",
        "history": "put its turns into `messages`",
    }
)
"""Fields that carry meaning wherever they stand, each with the way out where a row's shape does not read it."""


_TEXT = "text"
_NOT_BESIDE_TEXT = (*_OF_SHAPES, "question", "answer", "problem", "chosen", "rejected")
_NAMES = (*_LISTS, *_OF_SHAPES, _TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One row: its messages, or the plain text that it is; where it came from, and what else it said."""

    messages: list[Message]
    """None of plain text."""
    text: str | None = None
    """Of a row that is no conversation: trained on as it stands."""
    source: str
    """`file:line` or `row N`, for messages to people."""
    dataset: str = ""
    """The set that it is of, where a run has several."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the row that are no part of the conversation, such as a skill to report by; empty ones are left out."""
    left_out: Sequence[LeftOut] = ()

    @property
    def has_answer(self) -> bool:
        """True if it ends in an answer of text, which a model's own can be compared with."""
        *asked, last = self.messages or [Message(role="user", content="")]
        return (
            bool(asked) and last["role"] == "assistant" and bool(text_of(last).strip()) and not last.get("tool_calls")
        )


def conversation_from_row(row: object, source: str) -> Conversation:
    """A conversation from one row. A row with `tools` (a list, or JSON text of one) declares them to the model.

    Raises:
        InputError: `source: reason`.
    """
    row = in_our_case(row, _NAMES)
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"a row must be an object, not {type(row).__name__}")
        if _TEXT in row and not is_conversation(row):
            return Conversation(messages=[], text=_plain_text(row), source=source, extra=_extra(row, {_TEXT}))
        reader = RowReader(row)
        messages = _messages(row, reader)
        _refuse_unread(row, reader)
        messages = reader.opened(messages)
    except InputError as error:
        raise error.at(source) from error
    extra = _extra(row, {*reader.used, *(_LISTS if reader.used.keys() & {*_LISTS} else ()), *BESIDE})
    return Conversation(messages=messages, source=source, extra=extra, left_out=reader.left_out(source))


def _extra(row: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in used and not is_empty(value)}


def _plain_text(row: Mapping[str, Any]) -> str:
    for name, value in row.items():
        if str(name).lower() in (*_NOT_BESIDE_TEXT, *REFUSED, *SYSTEM, "tools") and not is_empty(value):
            raise InputError(
                f"{name} is not read beside text; give both in messages, or remove it from the rows",
                way_out=offer([*row], CONVERSATIONS[:1]),
            )
    text = _string(row, _TEXT)
    if not text.strip():
        raise InputError("text is empty; there is nothing to train on")
    parse_messages([{"role": "user", "content": text}])  # has checks of what a text may hold
    return text


def is_conversation(row: Mapping[str, Any]) -> bool:
    """True if a row has one of the shapes of a conversation: a list of messages, or a question and its answer."""
    has_turns = any(not is_empty(row.get(name)) for name in _LISTS)
    return has_turns or bool(_asking(row) if is_empty(row.get(_TEXT)) else _asking_something(row))


def _asking(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [pair for pair in _QUESTION_ANSWER if pair[0] in row and pair[1] in row]


def _asking_something(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A table may have the fields of several shapes; a row says something in those of its own."""
    return [pair for pair in _asking(row) if not all(is_empty(row[each]) for each in pair)]


def check_columns(columns: Sequence[str] | None, name: str) -> None:
    """Raises `InputError` once for a table whose columns make no conversations, in place of an error for each row."""
    if columns is None:
        return
    fields = in_our_case(dict.fromkeys(columns), _NAMES)
    if any(field in fields for field in (*_LISTS, _TEXT)):
        return
    if not any(question in fields and answer in fields for question, answer in _QUESTION_ANSWER):
        raise InputError(
            f"{name} has the columns {', '.join(map(repr, columns))[:300]}, which make no conversation; it needs "
            f"{SHAPES} (in CSV, named by its first line)",
            way_out=offer(columns, CONVERSATIONS),
        )


def _messages(row: Mapping[str, Any], reader: RowReader) -> list[Message]:
    listed = [name for name in _LISTS if not is_empty(row.get(name))]
    asking = _asking_something(row)
    present = [name for name in _LISTS if name in row]
    if listed or (present and not asking):
        return reader.listed([*listed, *present][0])
    if pairs := [*asking, *_asking(row)]:
        question, answer = pairs[0]
        return [*reader.asked(question), *reader.said(answer, "assistant")]
    if not is_empty(row.get("chosen")) and not is_empty(row.get("rejected")):
        raise InputError(
            "the row is a preference (chosen, rejected), which is not trained on as a conversation; give rows of "
            f"{SHAPES}"
        )
    found = ", ".join(map(str, row)) or "nothing"
    raise InputError(
        f"no messages: a row needs {SHAPES}; this one has {found}", way_out=offer([*map(str, row)], CONVERSATIONS)
    )


def _refuse_unread(row: Mapping[str, Any], reader: RowReader) -> None:
    used, label = reader.used, row.get("label")
    for name in (*REFUSED, *(() if used.keys() & {*_LISTS} else _OF_SHAPES)):
        if name not in used and not is_empty(row.get(name)):
            shape = " + ".join(key for key in row if key in used)
            way_out = REFUSED.get(name, "put it into a message")
            raise InputError(f"{name} is not read beside {shape}; {way_out}, or remove it from the rows")
    if isinstance(label, bool) or str(label).lower() in ("true", "false"):  # of KTO: whether an answer is a good one
        raise InputError("label is not read, and bad answers would be trained on; keep good rows only, without it")


def _string(row: Mapping[str, Any], key: str) -> str:
    if not isinstance(row[key], str):
        raise InputError(f"{key} must be a string, not {type(row[key]).__name__}")
    return str(row[key])
