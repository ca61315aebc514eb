"""The list of all runs: a line for each as plain values, which of them are wanted, and which have changed."""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cookhouse.errors import InputError
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.overview import RunOverview
from cookhouse.runs.reading.progress import progress_of
from cookhouse.view.place import Place

MAX_LINES: Final = 200
"""Of one page."""
_MAX_GONE: Final = 1000
Line: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """All lines at one moment, the newest first, each before its children."""

    lines: Sequence[Line]
    version: int
    """Goes up with each change."""
    changed: Mapping[str, int]
    """Version in which the line of each run became what it is."""
    gone: Mapping[str, int]
    """Version in which runs went that were there before."""


class Listing:
    """The lines of a place, read again each time they are asked for."""

    def __init__(self, place: Place) -> None:
        self.epoch = secrets.token_hex(4)
        """Versions of another server mean other lines."""
        self._place = place
        self._lock = threading.Lock()
        self._last = Listed(lines=(), version=0, changed={}, gone={})

    def look(self) -> Listed:
        """The lines now: the same object as before where none has changed."""
        with self._lock:
            lines = tuple(line_of(overview) for overview in self._place.overviews())
            last = self._last
            if lines == last.lines:
                return last
            version = last.version + 1
            before = {line["name"]: line for line in last.lines}
            now = {line["name"]: line for line in lines}
            changed = {name: last.changed[name] if before.get(name) == line else version for name, line in now.items()}
            gone = {**last.gone, **dict.fromkeys(before.keys() - now, version)}
            kept = [(name, at) for name, at in gone.items() if name not in now][-_MAX_GONE:]
            self._last = Listed(lines=lines, version=version, changed=changed, gone=dict(kept))
            return self._last


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which lines somebody wants to see."""

    recipe: str = ""
    state: str = ""
    text: str = ""
    """Words, each of which a line has somewhere."""
    offset: int = 0
    limit: int = MAX_LINES

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """As an address says it. Raises `InputError` for a state or a number that is none."""
        state = query.get("state", "")
        if state and state not in [*RunStatus]:
            raise InputError(f"no run is in the state {state!r}; states are {', '.join(RunStatus)}")
        return cls(
            recipe=query.get("recipe", ""),
            state=state,
            text=query.get("text", "").strip(),
            offset=_number(query, "offset", 0, None),
            limit=_number(query, "limit", MAX_LINES, MAX_LINES),
        )

    def select(self, lines: Sequence[Line]) -> list[Line]:
        """All that fit, on whichever page."""
        words = self.text.casefold().split()
        return [line for line in lines if self._fits(line) and all(word in _text(line) for word in words)]

    def page(self, selected: Sequence[Line]) -> Sequence[Line]:
        """Those of this page."""
        return selected[self.offset : self.offset + self.limit]

    def _fits(self, line: Line) -> bool:
        return self.recipe in ("", line["recipe"]) and self.state in ("", line["status"])


def line_of(overview: RunOverview) -> Line:
    """What the list shows of a run."""
    headline = overview.headline
    progress = progress_of(overview) if overview.status is RunStatus.RUNNING else None
    stderr = None if headline is None or overview.stderr is None else headline.metric.text(overview.stderr)
    return {
        "name": overview.name,
        "number": overview.number,
        "parent": overview.parent,
        "recipe": overview.recipe,
        "model": overview.model,
        "status": str(overview.status),
        "steps": overview.steps,
        "total_steps": overview.total_steps,
        "headline": None if headline is None else headline.text,
        "stderr": stderr,
        "best": overview.best_text,
        "started_at": overview.started_at.isoformat(timespec="seconds"),
        "num_launches": overview.num_launches,
        "error": overview.error,
        "is_synthetic": overview.is_synthetic,
        "doing": None if progress is None else progress.doing,
        "waiting_for": None if progress is None else progress.waiting_for,
        "seconds_left": None if progress is None else progress.seconds_left,
    }


def _text(line: Line) -> str:
    told = ("name", "recipe", "model", "status", "headline", "best", "error", "doing", "waiting_for")
    return "\n".join(str(line[name]) for name in told if line[name] is not None).casefold()


def _number(query: Mapping[str, str], name: str, default: int, most: int | None) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise InputError(f"{name}={text!r} is not a whole number from 0 on")
    return int(text) if most is None else min(int(text), most)
