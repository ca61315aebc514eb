"""Conversations from sources of any kind, and from rows in memory."""

import os
from collections.abc import Iterable, Iterator

from cookhouse.data.parsing import BadRows, parse_each
from cookhouse.data.rows.shapes import Conversation, check_columns, conversation_from_row
from cookhouse.data.sources.source import DataSource, data_source
from cookhouse.data.sources.store import RawRow, Rows, iter_blocks
from cookhouse.errors import InputError


def read_conversations(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[Conversation]:
    """The conversations of a source; blank rows are skipped. `bad` says what becomes of bad ones.

    Raises:
        InputError: it cannot be read or holds no row that can be used.
        BadRowsError: some of its rows are bad, each as `file:line: reason` or `NAME row N: reason`.
    """
    source = data_source(given)
    return conversations_of(source.rows, str(source), bad=bad)


def conversations_of(rows: Rows, name: str, *, bad: BadRows | None = None) -> list[Conversation]:
    """As `read_conversations`, of rows; `name` is what messages call them."""
    check_columns(rows.columns, name)
    conversations = parse_each(iter_blocks(rows), conversation_of, bad)
    if not conversations:
        raise InputError(f"{name} holds no conversations; it needs at least one row")
    return conversations


def conversation_of(row: RawRow) -> Conversation:
    """The conversation of a row. Raises `InputError` as `place: reason`."""
    return conversation_from_row(row.value(), row.place)


def iter_rows(given: str | os.PathLike[str] | DataSource) -> Iterator[RawRow]:
    """Every row of a source that is not blank. Raises `InputError` if it cannot be read."""
    return iter_blocks(data_source(given).rows)


def conversations_from_rows(rows: Iterable[object]) -> list[Conversation]:
    """Conversations from rows in memory, in the shapes that a file may have.

    Raises:
        InputError: there are none.
        BadRowsError: some are bad, each as `row N: reason`.
    """
    conversations = parse_each(
        enumerate(rows, start=1), lambda numbered: conversation_from_row(numbered[1], f"row {numbered[0]}")
    )
    if not conversations:
        raise InputError("there are no rows; training needs at least one conversation")
    return conversations
