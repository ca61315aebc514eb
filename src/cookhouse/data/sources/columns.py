"""Columns of rows that are our fields by other names."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from cookhouse.data.sources.parts import ConvertedRows
from cookhouse.data.sources.store import Rows
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.naming import names_in

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""Fields of ours, each with the column that is read as it."""

FIELDS = (
    *("messages", "conversations", "prompt", "completion", "instruction", "response", "input", "output", "context"),
    *("text", "system", "tools", "history", "question", "problem", "answer", "skill"),
    *("chosen", "rejected", "completion_a", "completion_b", "label"),
)
"""What a column may be read as."""


def parse_columns(text: str) -> Columns:
    """The columns of a setting, as `prompt:Question,completion:Answer`.

    Raises:
        UnknownNameError: there is no such field.
        InputError: it is not of that form, or names a field twice.
    """
    pairs = []
    for part in names_in(text):
        field, colon, column = (each.strip() for each in part.partition(":"))
        if not colon or not field or not column:
            raise InputError(
                f"columns is {text!r}; write a field of ours and your column of each, as in "
                "columns=prompt:Question,completion:Answer"
            )
        if field.lower() not in FIELDS:
            raise UnknownNameError("field in columns", field, FIELDS, way_out="the field stands first, then the column")
        pairs.append((field.lower(), column))
    fields = [field for field, _ in pairs]
    if twice := next((field for field in fields if fields.count(field) > 1), None):
        raise InputError(f"columns is {text!r}, which names {twice} twice; name it once")
    return tuple(pairs)


def renamed(rows: Rows, columns: Columns, name: str) -> Rows:
    """The rows with their columns by our names; `name` is what messages call the set.

    Raises:
        InputError: a table has no such column. Rows that name their fields one by one say so where they are read.
    """
    return _RenamedRows(rows, columns, name) if columns else rows


class _RenamedRows(ConvertedRows):
    def __init__(self, rows: Rows, columns: Columns, name: str) -> None:
        super().__init__(rows, partial(_renamed, columns))
        if rows.columns is not None:
            try:
                self.columns: Sequence[str] | None = list(_renamed(columns, dict.fromkeys(rows.columns)))
            except InputError as error:
                raise InputError(f"{name}: {error}") from error


def _renamed(columns: Columns, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row by our names, the case of its own being no matter. One that has a field by our name need not have the
    column.
    """
    in_lower_case = {name.lower(): name for name in row}
    found = {}
    for field, column in columns:
        name = column if column in row else in_lower_case.get(column.lower())
        if name is None and field not in row:
            raise InputError(
                f"there is no column {column!r} to be read as {field}; there are {', '.join(row)}; in columns= our "
                "field stands first, then your column"
            )
        found[field] = field if name is None else name
    rest = {name: value for name, value in row.items() if name not in found and name not in found.values()}
    return {**{field: row[name] for field, name in found.items()}, **rest}
