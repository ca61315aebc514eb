"""Checkpoints on this machine: those that a run recorded and those that a server keeps, and how a user names one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.cli.runs.names import run_folder
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.extras import has_engine, require_engine
from cookhouse.files import is_folder
from cookhouse.registry import check_artifact
from cookhouse.runs.listing.find import is_run
from cookhouse.runs.listing.weights import weights_asked_for
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.service.local import default_state_dir, keeps_checkpoints, service_folder
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import (
    BaseModelWeights,
    CheckpointPath,
    RegisteredWeights,
    Weights,
    find_weights,
    is_checkpoint_path,
    no_checkpoint,
)

if TYPE_CHECKING:
    from cookhouse.server.storage.store.rows import CheckpointRow

TINKER = "tinker://"
_WHAT_PEFT_LOADS = (
    "peft loads it where neither the output projection nor experts were trained (train_unembed=false); else "
    "tinker_cookbook.weights.build_lora_adapter makes of it what peft loads"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint; what is not known of it is None."""

    path: str | None
    """Its `tinker://` name; a folder that a user points at has none."""
    folder: Path | None
    """Its files; None if they are on another service."""
    row: "CheckpointRow | None" = None
    """What the server that wrote it recorded."""
    step: int | None = None
    """Optimizer steps that the run had taken."""
    best: str | None = None
    """By what it has the best weights of its run, if it has."""
    run: Path | None = None
    """The folder of the run that recorded it."""


def list_saved(where: Path) -> list[SavedCheckpoint]:
    """The checkpoints of a run directory or of a server's state folder, oldest first.

    Raises:
        InputError: it is neither.
    """
    if is_run_folder(where):
        return _of_run(where)
    if not keeps_checkpoints(where):
        if is_run(where):
            raise no_checkpoint(where)
        raise InputError(f"{where} is neither the folder of a run nor the state folder of a server")
    return _of_state_dir(where)


def find_saved(which: str, run: str | None, state_dir: Path | None) -> SavedCheckpoint:
    """The checkpoint that `which` names: a `tinker://` path, a checkpoint's own folder, a run, meaning its best
    where it kept that, else its last, or a registered model as `name@version` or `name@stage`.

    A path is looked up in the run's folder, or in `state_dir`; else in the run here that recorded it, or in the state
    folder that `cookhouse serve` uses by default.

    Raises:
        InputError: there is no such checkpoint on this machine.
    """
    meant = find_weights(which)
    if isinstance(meant, BaseModelWeights) and not meant.is_folder:
        meant = weights_asked_for(which, has_service=False)
    if isinstance(meant, RegisteredWeights):
        return _registered(meant.in_registry(None))
    if not isinstance(meant, CheckpointPath):
        return _in_folder(_folder_of(meant))
    where = (state_dir or meant.saved_by((RUNS_FOLDER,))) if run is None else run_folder(run)
    if where is None:
        where = default_state_dir(os.environ)
        if not where.exists():
            raise InputError(
                f"no run in {RUNS_FOLDER}/ recorded {which}, and `cookhouse serve` has saved nothing on this machine; "
                "name its run with --run, or its server's folder with --state-dir"
            )
    known = {saved.path: saved for saved in list_saved(where) if saved.path is not None}
    if which not in known:
        raise UnknownNameError(f"checkpoint in {where}", which, [path for path in known if path is not None])
    return known[which]


def _folder_of(weights: Weights) -> Path:
    """Raises `InputError`: they are not what was trained here."""
    folder = Path(weights.name)
    if not is_folder(folder):
        raise InputError(
            f"{weights.name} is a base model, or an adapter of the package: nothing of it is a checkpoint; name a run, "
            f"a checkpoint's {TINKER} path, or a registered model as NAME@VERSION"
        )
    return folder


def saved_by(path: str) -> Path | None:
    """The folder of the run here that recorded a `tinker://` path; None: nobody did."""
    return find_weights(path).saved_by((RUNS_FOLDER,))


def folder_of(saved: SavedCheckpoint) -> Path:
    """The files of a checkpoint in the engine's own format.

    Raises:
        InputError: they are on another service or in an object store, in another format, or damaged.
    """
    if saved.folder is None and not is_unread(saved):
        raise InputError(
            f"{saved.path} is on the service that the run was trained on; this makes a folder of it:\n"
            f"  tinker checkpoint download {saved.path}\n"
            f"{_WHAT_PEFT_LOADS}"
        )
    require_engine("reading the files of a checkpoint")
    from cookhouse.engine.files.checksums import verify

    assert saved.folder is not None
    if saved.row is not None and not saved.folder.is_dir():
        raise InputError(
            f"the files of {saved.path} are not in {saved.folder.parent}: they lie where its server has its "
            f"--checkpoints, or are lost. From that server, this makes a folder of them:\n"
            f"  tinker checkpoint download {saved.path}"
        )
    if saved.row is not None and saved.row.kind == "external_weights":
        raise InputError(f"{saved.path} is in {saved.folder} as other programs read it. {_WHAT_PEFT_LOADS}")
    if saved.row is not None:
        verify(saved.folder, saved.row.sha256)
    return saved.folder


def is_unread(saved: SavedCheckpoint) -> bool:
    """True if the run's own service on this machine may keep it, which takes the engine to read."""
    if saved.row is not None or saved.run is None or has_engine():
        return False
    return keeps_checkpoints(service_folder(saved.run))


def _registered(weights: RegisteredWeights) -> SavedCheckpoint:
    """The weights of a registered model to train on from, which are never rounded."""
    version = weights.version
    check_artifact(version, version.artifact)
    path, files, run = version.artifact.path, version.artifact.files, version.run_folder
    if not is_checkpoint_path(path):
        return _in_folder(Path(path))
    if run is not None and is_run_folder(Path(run)):
        return find_saved(path, run, None)
    return SavedCheckpoint(path=path, folder=None if files is None else Path(files))


def is_run_folder(folder: Path) -> bool:
    """True if a run has recorded checkpoints here."""
    return (folder / CHECKPOINTS_FILE).is_file()


def _in_folder(folder: Path) -> SavedCheckpoint:
    from cookhouse.engine.files.manifest import is_checkpoint

    if is_checkpoint(folder):
        return SavedCheckpoint(path=None, folder=folder)
    if not is_run_folder(folder):
        if is_run(folder):
            raise no_checkpoint(folder)
        raise InputError(
            f"{folder} is neither a checkpoint's folder nor a run's; name one of them, or a checkpoint's {TINKER} path"
        )
    saved = _of_run(folder)
    if not saved:
        raise no_checkpoint(folder)
    return meant(saved)


def meant(saved: Sequence[SavedCheckpoint]) -> SavedCheckpoint:
    """Choose the checkpoint that the name of the run stands for: the best where it kept that, else the last."""
    return next((each for each in reversed(saved) if each.best is not None), saved[-1])


def _of_run(folder: Path) -> list[SavedCheckpoint]:
    """Checkpoints that a run recorded, the training state after the weights for sampling: its weights are never
    rounded. What the run's own service keeps of it is left out without the engine.
    """
    from cookhouse.report import checkpoint_text
    from cookhouse.weights.checkpoints import CheckpointFile

    is_kept = keeps_checkpoints(service_folder(folder)) and has_engine()
    kept = _of_state_dir(service_folder(folder)) if is_kept else []
    by_path = {saved.path: saved for saved in kept}
    return [
        replace(
            by_path.get(path, SavedCheckpoint(path=path, folder=None)),
            step=point.step,
            run=folder,
            best=checkpoint_text(point) if point.best else None,
        )
        for point in CheckpointFile(folder / CHECKPOINTS_FILE).read()
        for path in (point.sampler_path, point.state_path)
        if path is not None
    ]


def _of_state_dir(state_dir: Path) -> list[SavedCheckpoint]:
    require_engine(f"reading what a server keeps in {state_dir}")
    from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints

    return [
        SavedCheckpoint(path=kept.row.path, folder=kept.folder, row=kept.row) for kept in stored_checkpoints(state_dir)
    ]
