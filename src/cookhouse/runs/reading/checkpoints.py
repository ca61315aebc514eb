"""The checkpoints of a run with their lineage: what it was started from, and what was started from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report import checkpoint_text
from cookhouse.runs.listing.deletion import runs_that_need
from cookhouse.runs.listing.find import FoundRun
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile


@dataclass(frozen=True, kw_only=True)
class SavedWeights:
    """A checkpoint, and what it is besides."""

    checkpoint: Checkpoint
    best_text: str | None
    """By what it has the best weights of the run, where it does: `held-out loss 1.25 after step 40`."""
    registered_as: str | None
    """`name@version`, where the run registered it."""


@dataclass(frozen=True, kw_only=True)
class NamedOrigin:
    """Weights that the settings of a run name."""

    setting: str
    name: str
    run: str | None
    """The run of the place that saved them, if one did."""


def saved_weights(run: FoundRun) -> list[SavedWeights]:
    """The checkpoints of a run, the oldest first.

    Raises:
        InputError: a line of checkpoints.jsonl is no checkpoint.
    """
    saved = CheckpointFile(run.path / CHECKPOINTS_FILE).read()
    # What a run registers is its best where it keeps that, else the final one.
    kept = next((point for point in reversed(saved) if point.best), None) or next(
        (point for point in reversed(saved) if point.final), None
    )
    model = next((each.registered_model for each in reversed(run.history.launches) if each.registered_model), None)
    return [
        SavedWeights(
            checkpoint=point,
            best_text=checkpoint_text(point, run.history.declared) if len(point.best) == 1 else None,
            registered_as=model if point is kept else None,
        )
        for point in saved
    ]


def started_from(run: FoundRun, runs: Sequence[FoundRun]) -> list[NamedOrigin]:
    """The weights that a run's settings name, with the runs of the place that saved them."""
    named = run.record.get("weights")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    others = [other for other in runs if other.name != run.name]
    found = {name: _saved_by(name, run, others) for name in names if name}
    return [NamedOrigin(setting=_setting_of(name, run.record), name=name, run=found[name]) for name in found]


def started_runs(run: FoundRun, runs: Iterable[FoundRun]) -> list[str]:
    """Names of the runs of the place that were started from weights of this one, or of a run within it."""
    return [other.name for other in runs_that_need(run.path, [other for other in runs if other.name != run.name])]


def _setting_of(name: str, record: Mapping[str, Any]) -> str:
    settings = record.get("config", {}).items()
    exact = next((setting for setting, value in settings if value == name), None)
    within = (setting for setting, value in settings if isinstance(value, str) and name in value.split(","))
    return exact or next(within, "weights")


def _saved_by(name: str, run: FoundRun, others: Sequence[FoundRun]) -> str | None:
    if "@" in name and "://" not in name:
        return next((other.name for other in others if name in _registered(other)), None)
    if "://" in name:
        return next((other.name for other in others if name in _paths(other)), None)
    # Relative to where the run was started.
    whole = (Path(run.history.launches[-1].folder or ".") / name).resolve()
    return next((other.name for other in others if other.path.resolve() == whole), None)


def _registered(run: FoundRun) -> set[str | None]:
    return {launch.registered_model for launch in run.history.launches}


def _paths(run: FoundRun) -> set[str | None]:
    try:
        saved = CheckpointFile(run.path / CHECKPOINTS_FILE).read()
    except (InputError, OSError):  # what is broken has saved nothing
        return set()
    return {path for point in saved for path in (point.state_path, point.sampler_path)}
