"""Time of a run by stage: the spans at the end of its trace, by name."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cookhouse.runs.reading.ranges import read_before

_TRACE_BYTES = 1 << 18


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """Time of what ran under one name, as far as it was read."""

    name: str
    count: int
    seconds: float
    """Of all of them together; those that ran at the same time count each."""
    last_seconds: float
    last_step: int | None
    """Steps taken before it."""
    error: str | None
    """What ended the last one, if something did."""

    @property
    def mean_seconds(self) -> float:
        return self.seconds / self.count

    def as_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "mean_seconds": self.mean_seconds}


def stage_times(path: Path) -> list[StageTime]:
    """Of a trace, those that took the most time first."""
    found: dict[str, StageTime] = {}
    for name, seconds, step, error in _spans(path):
        before = found.get(name)
        found[name] = StageTime(
            name=name,
            count=1 + (before.count if before else 0),
            seconds=seconds + (before.seconds if before else 0.0),
            last_seconds=seconds,
            last_step=step,
            error=error,
        )
    return sorted(found.values(), key=lambda stage: -stage.seconds)


def _spans(path: Path) -> Iterator[tuple[str, float, int | None, str | None]]:
    """Name, seconds, step and error of each span near the end: a line where it begins, and one where it ends."""
    part = read_before(path, max_bytes=_TRACE_BYTES)
    lines = [] if part is None else part.data.split(b"\n")
    begun: dict[str, Any] | None = None
    for line in lines:
        entry = _entry(line)
        if entry is not None and entry.get("ph") == "b":
            begun = entry
        elif entry is not None and begun is not None and entry.get("id") == begun.get("id"):
            args = begun.get("args")
            args = args if isinstance(args, dict) else {}
            step, error = args.get("step"), args.get("error")
            yield (
                str(entry["name"]),
                max(0.0, (entry["ts"] - begun["ts"]) / 1e6),
                step if isinstance(step, int) else None,
                error if isinstance(error, str) else None,
            )
            begun = None


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.removesuffix(b","))
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(entry, dict) and isinstance(entry.get("ts"), int | float) and isinstance(entry.get("name"), str)
    return entry if is_one else None
