"""A run directory, finished or not, read into plain data; what is missing or broken is named there."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cookhouse.errors import InputError
from cookhouse.report import RecordedAnswer, RunPart, RunRecord
from cookhouse.runs.findings import findings_of
from cookhouse.runs.history.facts import facts_of, place_of
from cookhouse.runs.history.launches import History, RunStatus, read_history
from cookhouse.runs.listing.find import find_runs, is_run
from cookhouse.runs.listing.overview import overviews_of
from cookhouse.runs.names import (
    ATTEMPT_ANSWERS_FILE,
    CONFIG_FILE,
    DATA_FILE,
    EVALUATIONS_FOLDER,
    METRICS_FILE,
    REPORT_FILE,
    ROLLOUTS_FOLDER,
    RUN_FILE,
    TEACHER_FILE,
)
from cookhouse.runs.samples import answer_from_row, evaluated_steps, read_answers
from cookhouse.telemetry import Headline, Metric, choose_headline, read_metrics
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile

T = TypeVar("T")
E = TypeVar("E")


def read_record(folder: Path, *, reads_metrics: bool = True) -> RunRecord:
    """Read what a run has left in its folder so far: of its evaluations, the first and the last. Without
    `reads_metrics` it has no rows of metrics, which somebody else has read.

    Raises:
        InputError: the folder holds no run.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder of a run")
    gaps: list[str] = []

    def read(path: Path, reader: Callable[[Path], T], empty: E, unmade: str | None = None) -> T | E:
        name = path.relative_to(folder)
        try:
            if path.is_file():
                return reader(path)
            gaps.extend([] if unmade is None else [f"{name} is missing: {unmade}"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            gaps.append(f"{name} cannot be read: {error}")
        return empty

    no_config: dict[str, Any] = {}
    config = read(folder / CONFIG_FILE, _read_config, no_config, "the settings are unknown")
    is_run = config or any((folder / name).exists() for name in (METRICS_FILE, CHECKPOINTS_FILE))
    if not is_run and any(folder.iterdir()):
        raise InputError(f"{folder} holds files but no run (no {CONFIG_FILE} of one); name the folder of a run")
    no_data: dict[str, Any] = {}
    no_rows: list[dict[str, Any]] = []
    no_checkpoints: list[Checkpoint] = []
    parts = run_parts(folder)
    is_whole = not parts  # the figures of one that consists of others are in theirs
    unmade = "no step has finished" if is_whole else None
    metrics = read(folder / METRICS_FILE, read_metrics, no_rows, unmade) if reads_metrics else no_rows
    is_trained = is_whole and not (folder / ATTEMPT_ANSWERS_FILE).exists()
    unsaved = "nothing has been saved" if is_trained else None
    checkpoints = read(folder / CHECKPOINTS_FILE, _read_checkpoints, no_checkpoints, unsaved)
    facts: dict[str, str] = {}
    place, resume = "", None
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    declared: Mapping[str, Metric] = {}
    history = read(folder / RUN_FILE, lambda file: read_history(file.parent), None, "when it ran is unknown")
    if history is not None:
        facts, place, resume = facts_of(history), place_of(history), resume_command(folder, history)
        warnings, notes, declared = history.warnings, history.notes, history.declared
    samples = list(evaluated_steps(folder).items())
    return RunRecord(
        folder=folder.resolve(),
        config=config,
        metrics=metrics,
        checkpoints=checkpoints,
        answers={step: read(path, read_answers, []) for step, path in dict([*samples[:1], *samples[-1:]]).items()},
        data=read(folder / DATA_FILE, _read_data, no_data),
        teacher=read(folder / TEACHER_FILE, _read_teacher, []),
        rollouts=_pages(folder / ROLLOUTS_FOLDER),
        evaluations=_pages(folder / EVALUATIONS_FOLDER),
        facts=facts,
        declared=declared,
        headline=_headline(metrics, declared)
        or next((part.headline for part in reversed(parts) if part.headline), None),
        place=place,
        resume=resume,
        parts=parts,
        warnings=warnings,
        findings=findings_of(metrics, config.get("config", {}), history, lambda: checkpoints),
        notes=notes,
        gaps=gaps,
    )


def _headline(metrics: Sequence[Mapping[str, Any]], own: Mapping[str, Metric]) -> Headline | None:
    """As the list of runs has it, which reads no whole file."""
    first: dict[str, Any] = {}
    for row in metrics:
        if row["step"] != 0:
            break
        first |= row
    last = {name: row for row in metrics for name in row}
    return choose_headline((*first, *(metrics[-1] if metrics else ())), first, lambda name: last.get(name, {}), own)


def headline_of(folder: Path) -> Headline | None:
    """The headline of a run by itself. Raises `InputError` where the folder has no run, or its files cannot be read."""
    return _headline(read_metrics(folder / METRICS_FILE), read_history(folder).declared)


def resume_command(folder: Path, history: History) -> str | None:
    """The command that goes on with a run that came to no end: with the one that it is a part of, if it is."""
    if history.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
        return None
    whole = folder.resolve()
    return f"cookhouse runs resume {shlex.quote(str(whole.parent if is_run(whole.parent) else whole))}"


def run_parts(folder: Path) -> list[RunPart]:
    """The runs that a run consists of, in the order in which they began."""
    found = find_runs(folder)
    overviews = {overview.name: overview for overview in overviews_of(found)}
    return [
        RunPart(
            name=run.name,
            recipe=overviews[run.name].recipe or "-",
            state=run.history.status,
            headline=overviews[run.name].headline,
            page=f"{run.name}/{REPORT_FILE}" if (run.path / REPORT_FILE).is_file() else None,
        )
        for run in found
    ]


def _pages(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.html"))


def _read_config(path: Path) -> dict[str, Any]:
    config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise InputError("it is not the config of a run")
    return config


def _read_data(path: Path) -> dict[str, Any]:
    fingerprints = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(fingerprints, dict):
        raise InputError("it does not hold fingerprints")
    return fingerprints


def _read_teacher(path: Path) -> list[RecordedAnswer]:
    return [answer_from_row(row) for row in json.loads(path.read_text(encoding="utf-8"))["answers"]]


def _read_checkpoints(path: Path) -> list[Checkpoint]:
    return CheckpointFile(path).read()
