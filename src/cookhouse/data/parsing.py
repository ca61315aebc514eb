"""Rows parsed one by one, and what is wrong with them reported together."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from cookhouse.errors import BadRowsError, InputError

S = TypeVar("S")
T = TypeVar("T")

_REPORTED = 20


def parse_each(rows: Iterable[S], parse: Callable[[S], T]) -> list[T]:
    """What `parse` makes of each row, in order.

    Raises:
        BadRowsError: `parse` raised `InputError`, which is to name the row; the first twenty, once all have been tried.
    """
    parsed: list[T] = []
    refused: list[InputError] = []
    num_refused = 0
    for row in rows:
        try:
            parsed.append(parse(row))
        except InputError as error:
            num_refused += 1
            if num_refused <= _REPORTED:
                refused.append(error)
    if refused:
        raise BadRowsError([str(error) for error in refused], num_refused) from refused[0]
    return parsed
