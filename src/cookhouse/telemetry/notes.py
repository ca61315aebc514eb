"""Notes on a run, by weight: those on what changes its result, then those that are worth knowing."""

from collections.abc import Iterable, Sequence
from typing import Final

MAX_IN_VIEW: Final = 3
"""Notes that the terminal shows at a time; the others with --verbose."""


class ResultNote(str):
    """A note on something that changes the result of the run. A plain string is a note that is worth knowing."""

    __slots__ = ()


def by_weight(notes: Iterable[str]) -> list[str]:
    """Each note once, those that change the result first."""
    return sorted(dict.fromkeys(notes), key=lambda note: not isinstance(note, ResultNote))


def in_view(notes: Sequence[str], *, is_whole: bool) -> tuple[Sequence[str], str]:
    """The notes that are shown, and words for the others; the words are empty where all are shown."""
    num_more = 0 if is_whole else max(0, len(notes) - MAX_IN_VIEW)
    more = f"{num_more:,} more note{'s' * (num_more != 1)} with --verbose" if num_more else ""
    return notes[: len(notes) - num_more], more
