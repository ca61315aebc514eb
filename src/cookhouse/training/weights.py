"""How a user names weights, the same wherever a path is asked for.

tinker://...     the path itself, of whichever run
runs/first       the folder of a run, meaning its last checkpoint
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from cookhouse.errors import InputError
from cookhouse.training.checkpoints import Checkpoint, CheckpointFile

_TINKER = "tinker://"
_RECORD = "checkpoints.jsonl"


def names_weights(name: str) -> bool:
    """Whether a text names weights, rather than a base model."""
    return name.startswith(_TINKER) or _is_run(Path(name))


def weights_path(name: str, *, purpose: Literal["training", "sampling"]) -> str:
    """The `tinker://` path of what `name` means: to train on from, or to sample from.

    Raises:
        InputError: it names no weights, or the run has saved none for this purpose yet.
    """
    if name.startswith(_TINKER):
        return name
    folder = Path(name)
    if not _is_run(folder):
        raise InputError(
            f"{name!r} names no weights; give a {_TINKER} path, or the folder of a run that has saved some"
        )
    for saved in reversed(_saved(folder)):
        state_path = saved.state_path if purpose == "training" else None
        if (path := state_path or saved.sampler_path) is not None:
            return path
    what = "" if purpose == "training" else " weights to sample from"
    raise InputError(f"the run in {name} has saved no{what or ' checkpoint'} yet; let it finish, or resume it")


def run_that_saved(name: str, *, among: Iterable[Path]) -> Path | None:
    """The run folder whose weights are named: it is the name, or it lies in one of the folders `among` which to look.

    None: no such run is there, or its files cannot be read.
    """
    folder = Path(name)
    if _is_run(folder):
        return folder
    if not name.startswith(_TINKER):
        return None
    return next((run for run in _runs(among) if name in _paths(run)), None)


def _runs(among: Iterable[Path]) -> Iterator[Path]:
    for folder in among:
        if folder.is_dir():
            yield from (file.parent for file in sorted(folder.glob(f"*/{_RECORD}")))


def _paths(run: Path) -> set[str | None]:
    try:
        return {path for saved in _saved(run) for path in (saved.state_path, saved.sampler_path)}
    except (InputError, OSError):  # somebody else's run, of which nothing was said
        return set()


def _saved(run: Path) -> list[Checkpoint]:
    return CheckpointFile(run / _RECORD).read()


def _is_run(folder: Path) -> bool:
    return (folder / _RECORD).is_file()
