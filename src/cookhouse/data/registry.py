"""Data sets of the user's own, by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from cookhouse.errors import InputError
from cookhouse.naming import OpenSet

RowsFunction: TypeAlias = Callable[[], Iterable[object]]
"""Gives rows in the shapes that a JSON Lines file may have. What it gives is checked as such a file is."""

DATASETS: OpenSet[RowsFunction] = OpenSet(
    kind="data set",
    group="cookhouse.datasets",
    builtin={},
    check=lambda thing: thing if callable(thing) else None,
    wants="a data set is named by a function of no arguments that returns its rows",
)


def names_dataset(text: str) -> bool:
    """Whether a text has the form of a data set's name, `module:NAME` and `file.py:NAME` among them; nothing is
    imported. A colon further up in a path makes none.
    """
    where, _, name = text.rpartition(":")
    return text in DATASETS.names() or (bool(where) and all(part.isidentifier() for part in name.split(".")))


def rows_of(name: str) -> Iterator[object]:
    """The rows of the data set of that name, from one call of its function.

    Raises:
        InputError: it cannot be found, it raised, or it returned no rows.
    """
    make = DATASETS.find(name)
    try:
        rows = make()
        # Those can be iterated, but over keys and characters.
        if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
            raise TypeError(f"it returned {type(rows).__name__} in place of rows; return a list of mappings, or yield")
        yield from rows
    except Exception as error:
        raise InputError(f"data set {name} gives no rows: {type(error).__name__}: {error}") from error
