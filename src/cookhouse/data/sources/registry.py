"""Data sets by name: those that people know, and the user's own."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cookhouse.data.sources.known import KnownSet
from cookhouse.errors import InputError
from cookhouse.naming import OpenSet

RowsFunction: TypeAlias = Callable[[], Iterable[object]]
"""Gives rows in the shapes that a JSON Lines file may have. What it gives is checked as such a file is."""


def _check(thing: Any) -> RowsFunction | KnownSet | None:
    if isinstance(thing, Sequence) and not isinstance(thing, str | bytes):
        return lambda: thing
    return thing if isinstance(thing, KnownSet) or callable(thing) else None


_KNOWN = (
    *("no_robots", "tulu3", "openthoughts3", "hh", "ultrafeedback", "helpsteer3", "helpsteer2", "arena"),
    *("gsm8k", "math", "math500", "deepmath", "polaris", "deepcoder", "humaneval"),
)

DATASETS: OpenSet[RowsFunction | KnownSet] = OpenSet(
    kind="data set",
    group="cookhouse.datasets",
    builtin={
        **{name: f"cookhouse.data.sources.known:{name.upper()}" for name in _KNOWN},
        "hhh": "cookhouse.data.sources.known:HH",
    },
    check=_check,
    wants="a data set is named by a function of no arguments that returns its rows, or by a list of them",
)


def names_dataset(text: str) -> bool:
    """True if a text has the form of a data set's name, `module:NAME` and `file.py:NAME` among them; nothing is
    imported. A colon further up in a path makes none.
    """
    where, _, name = text.rpartition(":")
    return text in DATASETS.names() or (bool(where) and all(part.isidentifier() for part in name.split(".")))


def rows_of(name: str, make: RowsFunction) -> Iterator[object]:
    """The rows of the data set of that name, from one call of its function.

    Raises:
        InputError: it raised, or it returned no rows.
    """
    try:
        rows = make()
        # Those can be iterated, but over keys and characters.
        if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
            raise TypeError(f"it returned {type(rows).__name__} in place of rows; return a list of mappings, or yield")
        yield from rows
    except Exception as error:
        raise InputError(f"data set {name} gives no rows: {type(error).__name__}: {error}") from error
