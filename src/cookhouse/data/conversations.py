"""Conversations from JSON Lines files, from data sets by name, and from rows in memory."""

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from cookhouse.data.parsing import parse_each
from cookhouse.data.rows import Conversation, conversation_from_row
from cookhouse.data.source import DataSource, data_source, file_source
from cookhouse.errors import InputError

MAX_LINE_BYTES = 16 * 2**20
"""A conversation of a million tokens fits; a file without line breaks is refused before it is in memory."""
_BOM = b"\xef\xbb\xbf"


def read_conversations(given: str | os.PathLike[str] | DataSource, *, limit: int | None = None) -> list[Conversation]:
    """The conversations of a UTF-8 JSON Lines file or of a data set by name, or the first `limit`; blank lines are
    skipped.

    Raises:
        InputError: it cannot be read or holds no row.
        BadRowsError: some of its rows are bad, each as `file:line: reason` or `NAME row N: reason`.
    """
    source = data_source(given)
    conversations = parse_each(islice(iter_lines(source), limit), _conversation)
    if not conversations:
        raise InputError(f"{source} holds no conversations; it needs at least one row")
    return conversations


def iter_lines(given: str | os.PathLike[str] | DataSource) -> Iterator[tuple[str, bytes]]:
    """The lines of a source, or of the file of a path, each with its `file:line` or `NAME row N`, for `row_from_line`;
    blank ones are skipped.

    Raises:
        InputError: it cannot be read, or, as `file:line: reason`, a line has no end within reason.
    """
    source = file_source(given)
    try:
        with source.open() as file:
            yield from _lines(file, source)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from error


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


def _lines(file: BinaryIO, source: DataSource) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{source.place(number)}: the line is longer than {MAX_LINE_BYTES:,} bytes; split the conversation"
            )
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield source.place(number), line


def _conversation(sourced: tuple[str, bytes]) -> Conversation:
    source, line = sourced
    return conversation_from_row(row_from_line(line, source), source)


def row_from_line(line: bytes, source: str) -> object:
    """The value of a line of UTF-8 JSON. Raises `InputError` as `source: reason`."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 at byte {error.start}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON that can be read: {error}") from error
