"""Notes of an environment, a grader or an evaluator of the user's own on one rollout or evaluation.

    with scope("grading"):
        note(f"expected {expected}")
        table([{"criterion": "brief", "score": 0.5}])

Entries belong to the rollout or evaluation that runs at the moment, also of many at once, and stand in its page and in
its JSON. Where none is running they are dropped, so that code may be used outside of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError

MAX_ENTRIES = 1_000
MAX_CHARACTERS = 200_000
MAX_DEPTH = 20

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of texts, as many in each as there are columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Entries under a title; one that is not open shows its title alone until somebody unfolds it."""

    title: str
    is_open: bool = True
    entries: Sequence["Entry"] = field(default_factory=list)


Entry: TypeAlias = Note | Table | Scope


@dataclass(kw_only=True)
class Recording:
    """Entries as they come, up to `MAX_ENTRIES` and `MAX_CHARACTERS`; of the rest there is the number."""

    entries: list[Entry] = field(default_factory=list)
    num_left_out: int = 0
    _num_entries: int = 0
    _num_characters: int = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Collect here what is noted in the body, and in tasks that begin in it."""
        token = _PLACE.set(_Place(recording=self, entries=self.entries, depth=0))
        try:
            yield
        finally:
            _PLACE.reset(token)

    def take(self, entry: Entry, into: list[Entry], depth: int) -> bool:
        """Add an entry unless there are too many, or it is too long or too deep."""
        size = _num_characters(entry)
        is_room = self._num_entries < MAX_ENTRIES and self._num_characters + size <= MAX_CHARACTERS
        if not is_room or depth > MAX_DEPTH:
            self.num_left_out += 1
            return False
        self._num_entries += 1
        self._num_characters += size
        into.append(entry)
        return True

    def drain(self) -> list[Entry]:
        """The entries since the last call, and how many were left out. The limits go on counting."""
        drained = list(self.entries)
        self.entries.clear()
        if self.num_left_out:
            drained.append(Note(text=f"({self.num_left_out} more entries were left out)"))
        self.num_left_out = 0
        return drained


@dataclass(frozen=True, kw_only=True)
class _Place:
    recording: Recording
    entries: list[Entry]
    depth: int


_PLACE: ContextVar[_Place | None] = ContextVar("cookhouse_scope", default=None)


@checked
@contextmanager
def scope(title: str, *, is_open: bool = True) -> Iterator[None]:
    """Put what is noted in the body under a title; with `is_open=False` it is folded away until somebody looks."""
    place = _PLACE.get()
    if place is None:
        yield
        return
    entries: list[Entry] = []
    depth = place.depth + 1
    is_kept = place.recording.take(Scope(title=str(title), is_open=is_open, entries=entries), place.entries, depth)
    # What stands in a scope that is left out is left out, too.
    token = _PLACE.set(_Place(recording=place.recording, entries=entries, depth=depth if is_kept else MAX_DEPTH + 1))
    try:
        yield
    finally:
        _PLACE.reset(token)


def note(text: object) -> None:
    """Keep a text, or anything as text."""
    _take(Note(text=str(text)))


@checked
def table(rows: Sequence[Mapping[str, object]]) -> None:
    """Keep rows by column; one that lacks a column has an empty cell there."""
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    cells = [[str(row[name]) if name in row else "" for name in columns] for row in rows]
    _take(Table(columns=columns, rows=cells))


def entries_to_json(entries: Sequence[Entry]) -> list[Json]:
    """As `entries_from_json` reads them."""
    return [_entry_to_json(entry) for entry in entries]


def entries_from_json(values: Sequence[Json]) -> list[Entry]:
    """The entries that `entries_to_json` wrote. Raises `InputError` if these are none."""
    try:
        return [_entry_from_json(value) for value in values]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not the entries of a scope: {type(error).__name__}: {error}") from error


def _take(entry: Entry) -> None:
    if (place := _PLACE.get()) is not None:
        place.recording.take(entry, place.entries, place.depth)


def _num_characters(entry: Entry) -> int:
    match entry:
        case Note():
            return len(entry.text)
        case Table():
            return sum(len(cell) + 1 for row in (entry.columns, *entry.rows) for cell in row)  # empty ones count, too
        case Scope():
            return len(entry.title)


def _entry_to_json(entry: Entry) -> Json:
    match entry:
        case Note():
            return {"note": entry.text}
        case Table():
            return {"columns": list(entry.columns), "rows": [list(row) for row in entry.rows]}
        case Scope():
            return {
                "scope": entry.title,
                "is_open": entry.is_open,
                "entries": entries_to_json(entry.entries),
            }


def _entry_from_json(value: Json) -> Entry:
    if "scope" in value:
        inner = [_entry_from_json(entry) for entry in value["entries"]]
        return Scope(title=str(value["scope"]), is_open=bool(value["is_open"]), entries=inner)
    if "columns" in value:
        rows = [[str(cell) for cell in row] for row in value["rows"]]
        return Table(columns=[str(name) for name in value["columns"]], rows=rows)
    return Note(text=str(value["note"]))
