"""The last evaluation on held-out data, from the end of a metrics file; and of an evaluation that is on, so far."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cookhouse.evals import Attempt, Estimate
from cookhouse.runs.names import METRICS_FILE
from cookhouse.runs.reading.attempts import AttemptIndex
from cookhouse.runs.reading.ranges import read_before
from cookhouse.telemetry import (
    COMPANIONS,
    Metric,
    as_float,
    find_metric,
    is_held_out,
    measured_text,
    metrics_row,
    ranked,
)

_END_BYTES: Final = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A metric of held-out data."""

    metric: Metric
    step: int
    """Which the measured weights had taken."""
    value: float
    stderr: float | None
    n: int | None
    """Items that it is the mean of; None: nobody said."""

    @property
    def text(self) -> str:
        """The value with its interval or its standard error."""
        return measured_text(self.metric, self.value, self.stderr, self.n)


def last_measured(folder: Path, own: Mapping[str, Metric]) -> list[Measured]:
    """Of each held-out metric the last value, as far as it lies near the end of the file; the most telling first. `own`
    are the metrics that the run declared.
    """
    found = read_before(folder / METRICS_FILE, max_bytes=_END_BYTES)
    lines = [] if found is None else found.data.split(b"\n")[:-1]
    last: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if b'"test/' in line and (row := _row(line)) is not None:
            last |= dict.fromkeys(filter(is_held_out, row), row)
    names = [name for name in ranked(last, own) if is_held_out(name) and not name.endswith(COMPANIONS)]
    figures = [_measured(name, last[name], own) for name in names]
    return [each for each in figures if each is not None]


def measured_so_far(index: AttemptIndex) -> list[Measured]:
    """Of an evaluation, by the items that have been answered and graded."""
    scores: dict[str, list[float]] = {}
    for (benchmark, place), grades in index.grades.items():
        scores.setdefault(benchmark, []).append(Attempt(place=place, answers=(), grades=grades).correct)
    estimates = {name: Estimate.of(some) for name, some in scores.items()}
    return [
        Measured(metric=find_metric(f"test/{name}/correct", {}), step=0, value=each.mean, stderr=each.stderr, n=each.n)
        for name, each in estimates.items()
        if each.mean is not None
    ]


def _measured(name: str, row: Mapping[str, Any], own: Mapping[str, Metric]) -> Measured | None:
    value = _number(row[name])
    if value is None:
        return None
    n = _number(row.get(f"{name}_n"))
    return Measured(
        metric=find_metric(name, own),
        step=row["step"],
        value=value,
        stderr=_number(row.get(f"{name}_stderr")),
        n=None if n is None else round(n),
    )


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(as_float(value)) else None


def _row(line: bytes) -> Mapping[str, Any] | None:
    return metrics_row(line)
