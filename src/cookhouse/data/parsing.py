"""Rows parsed one by one, and what is wrong with them reported together."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from cookhouse.errors import BadRowsError, InputError, by_reason
from cookhouse.telemetry import ResultNote

S = TypeVar("S")
T = TypeVar("T")

OnBadRow = Literal["stop", "skip"]
"""What becomes of rows that cannot be used: the run is refused, or they are left out and counted."""
_REPORTED = 20


class BadRows:
    """Faults of the rows of a set: the first twenty reasons, and the number of rows."""

    def __init__(self, on_bad_row: OnBadRow = "stop") -> None:
        self._on_bad_row = on_bad_row
        self._refused: list[InputError] = []
        self.count = 0

    def add(self, error: InputError) -> None:
        """One more, whose message names the row."""
        self.count += 1
        if self.count <= _REPORTED:
            self._refused.append(error)

    def check(self) -> None:
        """Raises `BadRowsError` if there are any and they are not to be left out."""
        if self._refused and self._on_bad_row == "stop":
            raise BadRowsError(self._refused, self.count) from self._refused[0]

    @property
    def notes(self) -> list[str]:
        """Notes on rows left out, with a sentence for each reason; empty if nothing is."""
        if not self._refused:
            return []
        count = "1 row cannot be used and is" if self.count == 1 else f"{self.count:,} rows cannot be used and are"
        first, *others = by_reason([" ".join(str(error).split()) for error in self._refused])
        more = self.count - len(self._refused)
        notes = [f"{count} left out: {first}", *(f"left out: {reason}" for reason in others)]
        return [ResultNote(note) for note in [*notes, *([f"left out: {more:,} more"] if more else [])]]


def parse_each(rows: Iterable[S], parse: Callable[[S], T], bad: BadRows | None = None) -> list[T]:
    """Results of `parse` for each row, in order; `bad` says what becomes of those that it refuses, and counts them.

    Raises:
        BadRowsError: `parse` raised `InputError`, which is to name the row; the first twenty, once all have been tried.
    """
    bad = bad or BadRows()
    parsed: list[T] = []
    for row in rows:
        try:
            parsed.append(parse(row))
        except InputError as error:
            bad.add(error)
    bad.check()
    return parsed
