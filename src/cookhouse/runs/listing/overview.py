"""Overview of a run for a list, read from the ends of its files: hundreds of runs take less than a second."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report import checkpoint_text
from cookhouse.runs.history.launches import MAX_FILE_BYTES, RunStatus, end_of
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import METRICS_FILE, RESULT_FILE, SWEEP_RECIPE
from cookhouse.telemetry import (
    Headline,
    Metric,
    choose_headline,
    keys,
    last_step_of,
    metrics_row,
    step_number,
)
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile

_END_BYTES = 1 << 18
_START_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """A run in one line. What is not known is None."""

    number: str
    name: str
    path: Path
    parent: str | None
    recipe: str | None
    model: str | None
    steps: int | None
    """Taken so far."""
    total_steps: int | None
    headline: Headline | None
    stderr: float | None
    """Standard error of what the headline says last, where it was measured."""
    started_at: datetime
    last_at: datetime
    seconds: float
    """Of all launches together."""
    num_launches: int
    status: RunStatus
    error: str | None
    best: Checkpoint | None
    """With its best weights, of a run that keeps them."""
    best_text: str | None
    """By what they are."""
    is_synthetic: bool
    """Whether no-op adapters made something up."""

    def as_json(self) -> dict[str, Any]:
        """Plain values by name."""
        times = {name: getattr(self, name).isoformat(timespec="seconds") for name in ("started_at", "last_at")}
        plain = {"path": str(self.path), "seconds": round(self.seconds, 3)}
        return {**asdict(self), **times, **plain, "headline": self.headline and self.headline.as_json()}


def overview_of(run: FoundRun) -> RunOverview:
    """Overview of a run by itself."""
    rows = _Rows(run.path / METRICS_FILE)
    summary = _summary(run.path / RESULT_FILE)
    settings = run.record.get("config", {})
    steps, total_steps = _steps(rows, run, summary)
    best = None if settings.get("keep_best") is None else _best(run.path / CHECKPOINTS_FILE)
    headline = _headline(rows, run.history.declared)
    return RunOverview(
        number=run.number,
        name=run.name,
        path=run.path,
        parent=run.parent,
        recipe=_recipe(run.record),
        model=_text(settings.get("model_name")),
        steps=steps,
        total_steps=total_steps,
        headline=headline,
        stderr=None if headline is None else headline.stderr,
        started_at=run.history.started_at,
        last_at=run.history.last_at,
        seconds=run.history.seconds,
        num_launches=len(run.history.launches),
        status=run.history.status,
        error=run.problem or run.history.error,
        best=best,
        best_text=None if best is None else checkpoint_text(best, run.history.declared),
        is_synthetic=bool(run.record.get("synthetic")),
    )


def overviews_of(runs: Sequence[FoundRun], read: Callable[[FoundRun], RunOverview] = overview_of) -> list[RunOverview]:
    """Of runs in a place: the newest first, each before its children, which stay in their order.

    A run that consists of others has the headline of the last of them, and a sweep that of the best. `read` may
    remember what it has read.
    """
    children: dict[str | None, list[RunOverview]] = {}
    for overview in map(read, runs):
        children.setdefault(overview.parent, []).append(overview)

    def whole(overview: RunOverview) -> Iterator[RunOverview]:
        below = [each for child in children.get(overview.name, ()) for each in whole(child)]
        measured = [each for each in below if each.headline is not None]
        if overview.recipe is not None and overview.recipe.startswith(SWEEP_RECIPE):
            measured = sorted(measured, key=_goodness)
        if overview.headline is None and measured:
            last = measured[-1]
            overview = replace(
                overview, headline=last.headline, stderr=last.stderr, best=last.best, best_text=last.best_text
            )
        yield overview
        yield from below

    return [each for overview in reversed(children.get(None, [])) for each in whole(overview)]


def _recipe(record: Mapping[str, Any]) -> str | None:
    name = _text(record.get("recipe"))
    return (
        f"{SWEEP_RECIPE} of {record['config'].get('recipe')}" if name == SWEEP_RECIPE and "config" in record else name
    )


def _goodness(overview: RunOverview) -> float:
    """The more, the better."""
    headline, best = overview.headline, overview.best
    assert headline is not None
    value = headline.after if best is None else best.best.get(headline.name, headline.after)
    if value is None:
        return -math.inf
    return -value if headline.metric.direction == "less" else value


def _best(path: Path) -> Checkpoint | None:
    try:
        return next(iter(CheckpointFile(path).best()[-1:]), None)
    except (OSError, InputError):  # `runs show` says what is wrong with it
        return None


class _Rows:
    """The first and the last rows of a metrics file; a torn or a broken line is none."""

    def __init__(self, path: Path) -> None:
        self._end = end_of(path, _END_BYTES).split(b"\n")[:-1]
        try:
            with path.open("rb") as file:
                start = file.read(_START_BYTES).split(b"\n")[:-1]
        except OSError:
            start = []
        self.first: dict[str, Any] = {}
        for line in start:
            row = _row(line)
            if row.get("step") != 0:
                break
            self.first |= row

    def last(self, name: str | None = None) -> Mapping[str, Any]:
        """The last row, or the last one that has a metric; empty if it is not near the end."""
        part = b"" if name is None else json.dumps(name).encode()
        for line in reversed(self._end):
            if part in line and (row := _row(line)):
                return row
        return {}


def _row(line: bytes) -> dict[str, Any]:
    return metrics_row(line) or {}


def _steps(rows: _Rows, run: FoundRun, summary: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Taken, and to take. A row of training is of a step that has been taken, another of the weights after it."""
    if isinstance(summary.get("num_steps"), int) and isinstance(summary.get("total_steps"), int):
        # What trains nothing, such as an evaluation, has none.
        return (summary["num_steps"], summary["total_steps"]) if summary["total_steps"] else (None, None)
    last = rows.last()
    recorded = [launch.total_steps for launch in run.history.launches if launch.total_steps is not None]
    done = last.get(keys.PROGRESS_DONE)
    total = recorded[-1] if recorded else None
    if total is None and isinstance(done, float) and done > 0:
        total = round(step_number(last["step"]) / done)
    taken = last_step_of(last) if last else 0
    return (taken, total) if last or total is not None else (None, None)


def _headline(rows: _Rows, own: Mapping[str, Metric]) -> Headline | None:
    return choose_headline((*rows.first, *rows.last()), rows.first, rows.last, own)


def _summary(path: Path) -> Mapping[str, Any]:
    """The summary in result.json; empty if there is none."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}
        summary = json.loads(path.read_text(encoding="utf-8"))["summary"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return summary if isinstance(summary, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
