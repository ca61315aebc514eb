"""Reading a sweep again and again while it runs: of its runs only those whose files have changed."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cookhouse.report import PAUSED, STOPPED, WAITING, RunRecord
from cookhouse.runs.history.launches import RunStatus
from cookhouse.runs.names import CONFIG_FILE, DATA_FILE, METRICS_FILE, RUN_FILE, SAMPLES_FOLDER
from cookhouse.runs.record import read_record
from cookhouse.sweeps.halving import HALVING_FILE
from cookhouse.sweeps.record import SweepRecord, read_sweep
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE

_READ = (CONFIG_FILE, RUN_FILE, METRICS_FILE, CHECKPOINTS_FILE, DATA_FILE, SAMPLES_FOLDER, HALVING_FILE)
"""What a table of a sweep depends on."""
_MAX_RUNS = 2000
_STATES = (
    RunStatus.FINISHED,
    RunStatus.RUNNING,
    WAITING,
    PAUSED,
    STOPPED,
    RunStatus.INTERRUPTED,
    RunStatus.FAILED,
)

Stamp = tuple[tuple[int, int, int] | None, ...]


class SweepReader:
    """Keeps of the records of runs what a table of them is made of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, tuple[Stamp, RunRecord]] = OrderedDict()

    def read(self, folder: Path) -> SweepRecord:
        """A sweep as it stands. Raises `InputError` where the folder holds none."""
        with self._lock:
            return read_sweep(folder, self._record)

    def _record(self, folder: Path) -> RunRecord:
        stamp = stamp_of(folder)
        kept = self._kept.pop(folder, None)
        if kept is None or kept[0] != stamp:
            kept = stamp, _slim(read_record(folder))
        self._kept[folder] = kept
        while len(self._kept) > _MAX_RUNS:
            self._kept.popitem(last=False)
        return kept[1]


def stamp_of(folder: Path) -> Stamp:
    """Stamp that differs once a run has written something that a table of its sweep shows."""
    return tuple(_stamp(folder / name) for name in _READ)


@dataclass(frozen=True, kw_only=True)
class SweepCounts:
    """Numbers of a sweep's runs by status, and of those that are left."""

    by_state: Mapping[str, int]
    """In a fixed order, those of none left out."""
    num_left: int
    """Planned or running."""
    seconds_left: float | None
    """At the pace of the runs that finished; None before the first, and where runs end after different steps."""


def sweep_counts(sweep: SweepRecord, jobs: int) -> SweepCounts:
    """Of a sweep that runs so many at a time."""
    states = {row.name: row.state for row in sweep.table.rows}
    counts = {state: list(states.values()).count(state) for state in (*_STATES, *states.values())}
    running = [name for name, state in states.items() if state == RunStatus.RUNNING]
    planned = [name for name, state in states.items() if state == WAITING]
    took = [sweep.seconds[name] for name, state in states.items() if state == RunStatus.FINISHED]
    mean = sum(took) / len(took) if took else None
    left = None
    if sweep.halving is None and mean is not None and (running or planned):
        begun = [max(0.0, mean - sweep.seconds[name]) for name in running]
        whole = sum(begun) + mean * len(planned)
        left = max([whole / max(1, jobs), *begun])
    return SweepCounts(
        by_state={str(state): count for state, count in counts.items() if count},
        num_left=len(running) + len(planned),
        seconds_left=left,
    )


def _slim(record: RunRecord) -> RunRecord:
    """A record with the rows alone that a table of the last values reads: of each metric the last, and those of the
    best weights.
    """
    steps = {row["step"] for row in _last_rows(record.metrics).values()}
    if record.best is not None:
        steps.add(record.best.step)
    answers = dict(list(record.answers.items())[-1:])
    rows = [row for row in record.metrics if row["step"] in steps]
    return replace(record, metrics=rows, answers=answers, rollouts=(), evaluations=(), teacher=())


def _last_rows(rows: Any) -> dict[str, Mapping[str, Any]]:
    return {name: row for row in rows for name, value in row.items() if isinstance(value, int | float)}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
