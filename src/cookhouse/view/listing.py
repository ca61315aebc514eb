"""The list of all runs: a line for each as plain values, which of them are wanted, and which have changed."""

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cookhouse.errors import InputError
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.listing.overview import RunOverview
from cookhouse.runs.reading.progress import RunProgress, progress_of
from cookhouse.telemetry import error_text
from cookhouse.view.place import Place

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
    """Filter of the lines to show."""

    recipe: str = ""
    state: str = ""
    text: str = ""
    """Words, each of which a line has somewhere."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """As an address says it. Raises `InputError` for a state that is none."""
        state = query.get("state", "")
        if state and state not in [*RunStatus]:
            raise InputError(f"no run is in the state {state!r}; states are {', '.join(RunStatus)}")
        return cls(recipe=query.get("recipe", ""), state=state, text=query.get("text", "").strip())

    def select(self, lines: Sequence[Line]) -> list[Line]:
        """All that fit, on whichever page."""
        words = dict.fromkeys(self.text.casefold().split())
        return [line for line in lines if self._fits(line) and _has_all(line, words)]

    def _fits(self, line: Line) -> bool:
        return self.recipe in ("", line["recipe"]) and self.state in ("", line["status"])


def line_of(overview: RunOverview) -> Line:
    """Line of the list for a run."""
    headline = overview.headline
    progress = progress_of(overview) if overview.status is RunStatus.RUNNING else None
    stderr = None if headline is None or overview.stderr is None else error_text(headline.metric, overview.stderr)
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
        "shown": {
            "number": overview.number,
            "state": _state_text(overview),
            "now": _now_text(overview, progress),
            "came_to": _outcome_text(overview),
            "steps": _steps_text(overview),
        },
    }


def _state_text(overview: RunOverview) -> str:
    resumed = f", launch {overview.num_launches}" if overview.num_launches > 1 else ""
    return f"{overview.status}{resumed}{' (synthetic)' if overview.is_synthetic else ''}"


def _now_text(overview: RunOverview, progress: RunProgress | None) -> str:
    """Words on what a run does, or on what ended it."""
    if progress is None:
        return overview.error or ""
    doing = f"waits for {progress.waiting_for}" if progress.waiting_for is not None else progress.doing
    return ", ".join(filter(None, (doing, progress.left_text)))


def _outcome_text(overview: RunOverview) -> str:
    if overview.headline is None:
        return ""
    last = overview.headline.text
    return last if overview.best_text is None else f"{last}, best {overview.best_text}"


def _steps_text(overview: RunOverview) -> str:
    if overview.steps is None:
        return ""
    return f"{overview.steps:,}" if overview.total_steps is None else f"{overview.steps:,}/{overview.total_steps:,}"


def _has_all(line: Line, words: Iterable[str]) -> bool:
    text = _text(line)
    return all(word in text for word in words)


def _text(line: Line) -> str:
    told = ("name", "recipe", "model", "status", "headline", "best", "error", "doing", "waiting_for")
    return "\n".join(str(line[name]) for name in told if line[name] is not None).casefold()
