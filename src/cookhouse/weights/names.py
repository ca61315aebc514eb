"""How a user names weights, the same wherever a path is asked for.

tinker://...     the path itself, of whichever run
runs/first       the folder of a run, meaning its last checkpoint
sums@production  a registered model, by its version or its stage
./adapter        a PEFT folder, which the embedded engine takes; or an embedded adapter, cookhouse/tiny-arithmetic
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from cookhouse.errors import InputError
from cookhouse.registry import ModelRegistry, ModelVersion, Query, check_artifact, names_registered_model
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile
from cookhouse.weights.peft_folders import peft_folder, peft_path

_TINKER = "tinker://"


def names_weights(name: str) -> bool:
    """Whether a text names weights, rather than a base model."""
    return (
        name.startswith(_TINKER) or _is_run(Path(name)) or peft_folder(name) is not None or names_registered_model(name)
    )


def weights_path(name: str, *, purpose: Literal["training", "sampling"], registry: ModelRegistry | None = None) -> str:
    """The `tinker://` path of what `name` means: to train on from, or to sample from.

    Raises:
        InputError: it names no weights, or the run has saved none for this purpose yet; or those of a registered model
            are gone, or no longer what was registered.
    """
    if name.startswith(_TINKER):
        return name
    folder = Path(name)
    if not _is_run(folder):
        if (adapter := peft_folder(name)) is not None:
            return peft_path(adapter)
        if registry is not None and names_registered_model(name):
            return _registered_path(registry.get(name), purpose)
        raise InputError(
            f"{name!r} names no weights; give a {_TINKER} path, the folder of a run that has saved some, a PEFT "
            "folder, or a registered model as NAME@VERSION or NAME@STAGE"
        )
    for saved in reversed(_saved(folder)):
        state_path = saved.state_path if purpose == "training" else None
        if (path := state_path or saved.sampler_path) is not None:
            return path
    what = "" if purpose == "training" else " weights to sample from"
    raise InputError(f"the run in {name} has saved no{what or ' checkpoint'} yet; let it finish, or resume it")


def registered_as(name: str, registry: ModelRegistry) -> ModelVersion | None:
    """The registered model whose weights a name means: as one, by a path of theirs, or by its run's folder.

    None: they are not registered. Raises as `weights_path`.
    """
    if not _is_run(Path(name)) and names_registered_model(name):
        return registry.get(name)
    found = registry.find(Query(artifact_path=weights_path(name, purpose="training")))
    return found[-1] if found else None


def _registered_path(version: ModelVersion, purpose: Literal["training", "sampling"]) -> str:
    artifact = version.artifact if purpose == "training" else version.weights_to_sample
    check_artifact(version, artifact)
    if not artifact.path.startswith(_TINKER):
        raise InputError(
            f"the weights of {version.id} are the folder {artifact.path}, which no service has; `cookhouse checkpoints "
            f"import` makes a {_TINKER} path of it, to be registered instead"
        )
    return artifact.path


def run_that_saved(name: str, *, among: Iterable[Path], registry: ModelRegistry | None = None) -> Path | None:
    """The run folder whose weights are named: it is the name, or it lies in one of the folders `among` which to look,
    or the registry has it.

    None: no such run is there, or its files cannot be read.
    """
    folder = Path(name)
    if _is_run(folder):
        return folder
    if registry is not None and names_registered_model(name):
        version = registry.get(name)
        if version.run_folder is not None and _is_run(Path(version.run_folder)):
            return Path(version.run_folder)
        name = version.weights_to_sample.path
    if not name.startswith(_TINKER):
        return None
    return next((run for run in _runs(among) if name in _paths(run)), None)


def _runs(among: Iterable[Path]) -> Iterator[Path]:
    for folder in among:
        if folder.is_dir():
            yield from (file.parent for file in sorted(folder.glob(f"*/{CHECKPOINTS_FILE}")))


def _paths(run: Path) -> set[str | None]:
    try:
        return {path for saved in _saved(run) for path in (saved.state_path, saved.sampler_path)}
    except (InputError, OSError):  # somebody else's run, of which nothing was said
        return set()


def _saved(run: Path) -> list[Checkpoint]:
    return CheckpointFile(run / CHECKPOINTS_FILE).read()


def _is_run(folder: Path) -> bool:
    return (folder / CHECKPOINTS_FILE).is_file()
