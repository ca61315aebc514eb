"""Values of rows as JSON has them: without what a table's form adds; what JSON lacks is written, or refused."""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nulls of one row that are no part of what it says, since a table has every key in every row."""

    place: str
    """The row, as messages call it."""
    count: int
    first: str
    """Where in the row the first one stands."""


class Nulls:
    """Counts the nulls that are left out of one row."""

    def __init__(self) -> None:
        self._count, self._first = 0, ""

    def add(self, where: str) -> None:
        self._first = self._first or where
        self._count += 1

    def left_out(self, place: str) -> tuple[LeftOut, ...]:
        """All of them, as one of the row at `place`; empty if there are none."""
        return (LeftOut(place, self._count, self._first),) if self._count else ()


def as_json(value: object) -> Any:
    """A date or a time as ISO text, a decimal as a number, a mapping as a dict, numpy's values as Python's. Raises
    `TypeError` for what else JSON lacks; `json.dumps` takes it as `default`.
    """
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.bool | np.number | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


def cleaned(value: object, where: str, nulls: Nulls) -> Any:
    """Arguments of a call, or the schema of a tool, without keys whose value is null; a list keeps its nulls.

    Raises:
        InputError: a value that JSON lacks, by its place, which begins with `where`.
    """
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where} is {value}, which is no number in JSON; give a number, or leave it out")
        return value
    if isinstance(value, Mapping):
        kept = {}
        for key, each in value.items():
            if each is None:
                nulls.add(f"{where}.{key}")
            else:
                kept[key] = cleaned(each, f"{where}.{key}", nulls)
        return kept
    if isinstance(value, list | tuple):
        return [cleaned(each, f"{where}[{index}]", nulls) for index, each in enumerate(value)]
    try:
        return cleaned(as_json(value), where, nulls)
    except TypeError as error:
        raise InputError(
            f"{where} is of type {type(value).__name__}, which JSON lacks; give text, a number, a list or an object"
        ) from error
