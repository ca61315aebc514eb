"""Conversations that stand one message to a row, as help desks export them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cookhouse.chat import is_empty
from cookhouse.data.sources.store import RawRow, Rows, iter_blocks, num_rows
from cookhouse.data.turns import SPEAKERS
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.naming import names_in

MAX_GROUPED_BYTES = 256 * 2**20
"""Rows of a conversation may stand anywhere in a file, so that it is read as a whole."""
ROLES = ("user", "assistant", "system")
_CALLED: Mapping[str, str] = {
    **SPEAKERS,
    **dict.fromkeys(("customer", "client", "requester", "end-user", "end user", "visitor", "caller"), "user"),
    **dict.fromkeys(("agent", "support", "operator", "staff", "bot", "helpdesk", "help desk"), "assistant"),
}
"""Roles by the names that exports give to speakers, in lower case."""
EVERYONE_ELSE = "*"
"""Stands for every speaker that is not named."""
_TEXT = "text"
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class MessageRows:
    """Columns of rows that are a message each."""

    conversation: str
    """Column whose value all messages of a conversation have."""
    turn: str
    """Column that says who speaks."""
    speakers: tuple[tuple[str, str], ...] = ()
    """Names in that column with their roles, besides those that are known."""


def parse_speakers(text: str) -> tuple[tuple[str, str], ...]:
    """Speakers of a setting, as `assistant:Bob,user:*`, as pairs of a name and its role.

    Raises:
        UnknownNameError: there is no such role.
        InputError: it is not of that form.
    """
    found = []
    for part in names_in(text):
        role, colon, name = (each.strip() for each in part.partition(":"))
        if not colon or not name:
            raise InputError(f"speakers is {text!r}; write a role and a name of each, as in speakers=user:Ann")
        if role not in ROLES:
            raise UnknownNameError("role in speakers", role, ROLES, way_out="the role stands first, then the name")
        found.append((name.lower(), role))
    return tuple(found)


class _Conversations:
    """Conversations in memory, in one block, by the value that the rows of each share; and rows that are in none."""

    columns: Sequence[str] | None = None

    def __init__(self, rows: Sequence[RawRow], num_bytes: int) -> None:
        self._rows = rows
        self.num_bytes = num_bytes
        self.block_rows = np.array([len(rows)], dtype=np.int64)

    def read(self, block: int) -> Sequence[RawRow]:
        assert block == 0
        return self._rows


def grouped(rows: Rows, columns: MessageRows | None, name: str) -> Rows:
    """The conversations of rows that are a message each, in the order in which they begin; `name` is what messages call
    the rows. Without `columns` the rows as they are.

    Neighboring messages of one speaker are one, and rows without text are none. Other columns are kept where all
    rows of a conversation have the same value. Rows that cannot be used come last, each with what is wrong with it.

    Raises:
        InputError: the rows are too large, no row holds a message, or a speaker has no role.
    """
    if columns is None:
        return rows
    if rows.num_bytes > MAX_GROUPED_BYTES:
        raise InputError(
            f"{name} has {rows.num_bytes:,} bytes, and rows of one message each are read as a whole, up to "
            f"{MAX_GROUPED_BYTES:,}; split the file"
        )
    found: dict[str, dict[str, Any]] = {}
    roles = _Roles(columns)
    refused: list[RawRow] = []
    for row in iter_blocks(rows):
        try:
            _add(found, row.value(), columns, roles)
        except InputError as error:
            reason = InputError(str(error).removeprefix(f"{row.place}: "))
            refused.append(RawRow(place=row.place, content=reason))
    roles.check(name)
    if not found and not refused:
        raise InputError(f"none of the {num_rows(rows):,} rows of {name} holds a message")
    whole = [RawRow(place=f"{name} {columns.conversation} {key}", content=each) for key, each in found.items()]
    return _Conversations([*whole, *refused], rows.num_bytes)


class _Roles:
    """Roles of speakers; those without one are told together."""

    def __init__(self, columns: MessageRows) -> None:
        self._column = columns.turn
        self._known = {**_CALLED, **dict(columns.speakers)}
        self._unknown: dict[str, None] = {}

    def of(self, speaker: str) -> str:
        """Role of a speaker; the user's where it has none."""
        role = self._known.get(speaker.lower(), self._known.get(EVERYONE_ELSE))
        if role is None:
            self._unknown[speaker] = None
        return role or "user"

    def check(self, name: str) -> None:
        """Raises `InputError` if there was one without a role."""
        if not self._unknown:
            return
        names = [*self._unknown]
        setting = shlex.quote(f"speakers=assistant:{names[0]},user:{EVERYONE_ELSE}")
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        raise InputError(
            f"{name}: nothing says in which role some in the column {self._column!r} speak: "
            f"{', '.join(map(repr, names[:_SHOWN]))}{more}; if {names[0]!r} alone answers, set {setting}"
        )


def _add(found: dict[str, dict[str, Any]], value: object, columns: MessageRows, roles: _Roles) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"a row must be an object, not {type(value).__name__}")
    names = (columns.conversation, columns.turn, _TEXT)
    key, speaker, text = (_cell(value, name) for name in names)
    if not key:
        raise InputError(f"{columns.conversation} is empty, so that its conversation is unknown")
    if not text:
        return
    read = {name.lower() for name in names}
    rest = {name: cell for name, cell in value.items() if name.lower() not in read}
    conversation = found.setdefault(key, {**rest, "messages": []})
    for name in [name for name in conversation if name != "messages" and conversation[name] != rest.get(name)]:
        del conversation[name]
    role, messages = roles.of(speaker), conversation["messages"]
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += f"\n\n{text}"
    else:
        messages.append({"role": role, "content": text})


def _cell(value: Mapping[str, Any], column: str) -> str:
    """Text of a cell without the spaces around it; the case of the column's name is no matter."""
    name = column if column in value else next((each for each in value if each.lower() == column.lower()), None)
    if name is None:
        way_out = "columns=text:COLUMN names the one with the text" if column == _TEXT else ""
        raise InputError(f"there is no column {column!r}; there are {', '.join(value)}", way_out=way_out)
    return "" if is_empty(value[name]) else str(value[name]).strip()


def speaker_columns(conversation: str | None, turn: str | None, speakers: str) -> MessageRows | None:
    """`conversation`, `turn` and `speakers` as settings have them; None where rows are whole conversations.

    Raises:
        InputError: one of the first two is given without the other.
    """
    if conversation is None and turn is None:
        return None
    if conversation is None or turn is None:
        raise InputError("conversation and turn name the columns of rows that are a message each; give both")
    return MessageRows(conversation=conversation, turn=turn, speakers=parse_speakers(speakers))
