"""Findings of a run, read from its folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cookhouse.diagnosis import Finding, RunFacts, diagnose, is_read
from cookhouse.errors import InputError
from cookhouse.runs.history.launches import History
from cookhouse.runs.names import METRICS_FILE
from cookhouse.telemetry import metrics_row
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile


def findings_of(
    rows: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any],
    history: History | None,
    checkpoints: Callable[[], Sequence[Checkpoint]],
) -> list[Finding]:
    """Findings in the rows of a run, with its settings and what its run.json holds; None: it has none."""
    launches = () if history is None else history.launches
    totals = [launch.total_steps for launch in launches if launch.total_steps is not None]
    facts = RunFacts(
        settings=settings,
        total_steps=totals[-1] if totals else None,
        checkpoints=checkpoints,
        declared={} if history is None else history.declared,
    )
    return diagnose(rows, facts)


def read_findings(folder: Path, settings: Mapping[str, Any], history: History) -> list[Finding]:
    """Findings of the run in a folder; a row that cannot be read counts as missing."""
    return findings_of(_rows(folder / METRICS_FILE), settings, history, lambda: read_checkpoints(folder))


def read_checkpoints(folder: Path) -> Sequence[Checkpoint]:
    """What a run has saved; nothing where that cannot be read, which is said where checkpoints are shown."""
    try:
        return CheckpointFile(folder / CHECKPOINTS_FILE).read()
    except (OSError, InputError):
        return []


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for line in file:
                if (row := metrics_row(line)) is not None:
                    yield {name: value for name, value in row.items() if name == "step" or is_read(name)}
    except OSError:
        return
