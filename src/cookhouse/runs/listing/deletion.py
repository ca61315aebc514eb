"""Deleting runs: who needs one, and its folder with all that lies in it, and nothing that lies outside."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.errors import InputError
from cookhouse.runs.listing.find import FoundRun, find_runs, has_record
from cookhouse.runs.lock import hold, is_held, is_locked
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, CheckpointFile

if TYPE_CHECKING:
    from cookhouse.registry import ModelRegistry

_SERVICE_LOCKS = {"lock", "server.lock"}
"""Of the state folder of an embedded service."""


def check_deletable(folder: Path) -> None:
    """Refuse what must not be deleted, before anything is.

    Raises:
        InputError: it is no run, or a link to one, or in use, as is a run that it consists of.
    """
    if folder.is_symlink():
        raise InputError(f"{folder} is a link, which is not followed; name the folder that it leads to")
    if not has_record(folder):
        raise InputError(f"{folder} is not surely the folder of a run, and is not deleted")
    for where, _, files in os.walk(folder):
        if is_held(Path(where)):
            raise InputError(f"a run is going on in {where}; stop it first (Ctrl-C saves), or wait for its end")
        if any(is_locked(Path(where, name)) for name in _SERVICE_LOCKS.intersection(files)):
            raise InputError(f"a service with its state in {where} is running, for a run or for a sample; end it first")


def delete_run(folder: Path) -> None:
    """Remove the folder of a run, and with it what the embedded service kept there. Links in it are removed as links.

    Raises:
        InputError: as `check_deletable`.
        OSError: something in it cannot be removed.
    """
    check_deletable(folder)
    with hold(folder):
        shutil.rmtree(folder.resolve())


def needs_of(paths: Sequence[Path], under: Path, registry: "ModelRegistry") -> dict[Path, list[str]]:
    """Of each run that is to go, in words, who has its weights or was started from them, and stays.

    Other runs are looked for below `under` and next to each.
    """
    places = dict.fromkeys([under, *(path.parent for path in paths)])
    others = {run.path.resolve(): run for place in places for run in find_runs(place)}
    going = [path.resolve() for path in paths]
    staying = [run for where, run in others.items() if not any(where.is_relative_to(gone) for gone in going)]
    registered = _registered(going, registry)
    needs: dict[Path, list[str]] = {}
    for path, whole in zip(paths, going, strict=True):
        versions = registered[whole]
        runs = runs_that_need(path, staying, also=versions)
        named = f"the weights of {path} are registered as {', '.join(versions)}"
        begun = f"the weights of {path} are what other runs were started from: {', '.join(run.name for run in runs)}"
        needs[path] = [named] * bool(versions) + [begun] * bool(runs)
    return needs


def _registered(going: Sequence[Path], registry: "ModelRegistry") -> dict[Path, list[str]]:
    """The registered versions that runs trained, or runs within them."""
    from cookhouse.registry import Query

    versions = registry.find(Query())
    return {
        path: [
            version.id
            for version in versions
            if version.run_folder is not None and Path(version.run_folder).resolve().is_relative_to(path)
        ]
        for path in going
    }


def runs_that_need(folder: Path, others: Iterable[FoundRun], *, also: Iterable[str] = ()) -> Sequence[FoundRun]:
    """Other runs whose settings name weights of this one, or of a run that it consists of; `also` are further
    names of these weights, such as `name@version`.
    """
    whole = folder.resolve()
    found = runs_that_name(saved_paths(folder) | {*also}, folder, others)
    return [run for run in found if not _is_in(run.path, whole)]


def runs_that_name(paths: set[str], folder: Path | None, runs: Iterable[FoundRun]) -> list[FoundRun]:
    """The ones of some runs whose settings name one of these weights, or what lies in a folder."""
    whole = None if folder is None else folder.resolve()
    return [run for run in runs if _names_any(run, paths, whole)]


def _names_any(run: FoundRun, paths: set[str], folder: Path | None) -> bool:
    recorded = run.record.get("weights")
    named = [name for name in recorded if isinstance(name, str)] if isinstance(recorded, list) else []
    # Relative to where the run was started.
    start = Path(run.history.launches[-1].folder or ".")
    return any(name in paths or (folder is not None and _is_in(start / name, folder)) for name in named if name)


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder)


def saved_paths(folder: Path) -> set[str]:
    """The `tinker://` paths that a run has saved, and those that it consists of, which may consist of others."""
    found: set[str] = set()
    for file in (Path(where, CHECKPOINTS_FILE) for where, _, files in os.walk(folder) if CHECKPOINTS_FILE in files):
        try:
            saved = CheckpointFile(file).read()
        except (InputError, OSError):  # what is broken names nothing
            continue
        found |= {path for point in saved for path in (point.state_path, point.sampler_path) if path is not None}
    return found
