"""The runs of a place, with their numbers, and how a person names one of them."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.files import is_folder
from cookhouse.runs.history.launches import MAX_FILE_BYTES, History, read_history, read_launches
from cookhouse.runs.names import (
    CONFIG_FILE,
    EVALUATIONS_FOLDER,
    EXAMPLES_FOLDER,
    ROLLOUTS_FOLDER,
    RUN_FILE,
    RUNS_FOLDER,
    SAMPLES_FOLDER,
)

MAX_DEPTH = 4
"""Of folders within folders, down from the place: a pipeline in a group of runs has its children there."""
_NO_RUNS = {"service", SAMPLES_FOLDER, ROLLOUTS_FOLDER, EXAMPLES_FOLDER, EVALUATIONS_FOLDER}
_MAX_SHOWN = 6
_RECORD = {"recipe": str, "config": dict}
"""What config.json holds at least."""


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run directory in its place."""

    number: str
    """Counted from the oldest, 1; the children of 3 are 3.1, 3.2 and so on. It changes when an older run is deleted."""
    name: str
    """Its path from the place."""
    path: Path
    parent: str | None
    """Name of the run that it is a part of."""
    record: Mapping[str, Any]
    """What config.json holds; empty if it cannot be read."""
    history: History
    problem: str | None = None
    """What of its record cannot be read."""


ReadRun: TypeAlias = Callable[[Path, str, str | None], FoundRun | None]
"""Of a folder, the name that a run there would have, and that of the run it would be a part of."""


def read_run(path: Path, name: str, parent: str | None) -> FoundRun | None:
    """The run in a folder, without its number; None if there is none."""
    if not is_run(path):
        return None
    record, problem = _read(path)
    try:
        history = read_history(path)
    except (InputError, OSError) as error:
        problem = str(error)
        try:
            began = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except OSError:  # deleted meanwhile
            return None
        history = History.unknown(began)
    return FoundRun(number="", name=name, path=path, parent=parent, record=record, history=history, problem=problem)


def find_runs(place: Path = RUNS_FOLDER, read: ReadRun = read_run, only: str | None = None) -> list[FoundRun]:
    """The runs in a folder and in the folders within it, the oldest first, each before its children.

    Links are not followed. None where there is no such folder. `read` may remember what it has read.
    `only`: the name of the one folder in the place to look at.
    """
    if not place.is_dir():
        return []
    by_parent: dict[str | None, list[FoundRun]] = {}
    folders = _folders(place) if only is None else [place / only]
    for run in sorted(_walk(folders, read, "", None, 1), key=lambda run: (run.history.started_at, run.name)):
        by_parent.setdefault(run.parent, []).append(run)
    return list(_numbered(by_parent, None, ""))


def run_names(place: Path = RUNS_FOLDER) -> list[str]:
    """Names of the runs in a place, the newest first."""
    return [run.name for run in reversed(find_runs(place))]


def find_run(name: str, place: Path = RUNS_FOLDER) -> Path:
    """The folder of the run that a person means: by its path; or, among those in a place, by its name, by its number
    (3 or #3), or by the beginning of its name that no other has.

    Raises:
        UnknownNameError: there is none.
        InputError: several begin so.
    """
    if is_run(Path(name)):
        return Path(name)
    runs = find_runs(place)
    by_name = {run.name: run for run in runs}
    number = name.removeprefix("#")
    exact = by_name.get(name) or next((run for run in runs if run.number == number), None)
    if exact is not None:
        return exact.path
    called = [run for run in runs if run.path.name == name]
    if len(called) == 1:
        return called[0].path
    alike = [run for run in runs if name and (run.name.startswith(name) or run.path.name.startswith(name))]
    # All that begin so may be one run and its children, which are named by it.
    whole = [run for run in alike if run.parent not in {other.name for other in alike}]
    if len(whole) == 1:
        return whole[0].path
    if alike:
        shown = ", ".join(f"{run.name} (#{run.number})" for run in whole[:_MAX_SHOWN])
        more = f" and {len(whole) - _MAX_SHOWN} more" if len(whole) > _MAX_SHOWN else ""
        raise InputError(f"{name!r} begins the names of several runs: {shown}{more}; name one of them, or its number")
    if is_folder(Path(name)):
        raise InputError(f"{name} is a folder without a run in it; name one that a run has written to")
    if not runs:
        raise InputError(f"there is no run {name!r}: no folder of a run has this name, and {place}/ holds no runs")
    raise UnknownNameError("run", name, by_name, way_out="a run is named by name, number or folder: cookhouse runs")


def is_run(folder: Path) -> bool:
    """True if a run has its files in a folder."""
    try:
        return (folder / RUN_FILE).is_file()
    except (OSError, ValueError):  # what is no path at all
        return False


def has_record(folder: Path) -> bool:
    """True if a folder is a run's beyond doubt: other programs have files of these names, too."""
    try:
        return bool(_read(folder)[0] or read_launches(folder))
    except InputError:
        return False


def _walk(folders: Iterable[Path], read: ReadRun, prefix: str, parent: str | None, depth: int) -> Iterator[FoundRun]:
    """The runs in folders and below, without their numbers."""
    for path in folders:
        name = f"{prefix}{path.name}"
        run = read(path, name, parent)
        if run is not None:
            yield run
        if depth < MAX_DEPTH:
            yield from _walk(_folders(path), read, f"{name}/", parent if run is None else name, depth + 1)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                folder / entry.name
                for entry in entries
                if entry.name not in _NO_RUNS and entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # somebody else's
        return []


def _read(folder: Path) -> tuple[Mapping[str, Any], str | None]:
    """Content of config.json, if it is a run's, and the error if it cannot be read."""
    path = folder / CONFIG_FILE
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}, f"{CONFIG_FILE} is larger than {MAX_FILE_BYTES >> 20} MiB"
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, f"{CONFIG_FILE} is missing"
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{CONFIG_FILE} cannot be read: {error}"
    is_one = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in _RECORD.items())
    return (record, None) if is_one else ({}, f"{CONFIG_FILE} is not the config of a run")


def _numbered(
    by_parent: Mapping[str | None, Sequence[FoundRun]], parent: str | None, prefix: str
) -> Iterator[FoundRun]:
    for index, run in enumerate(by_parent.get(parent, ()), start=1):
        number = f"{prefix}{index}"
        yield replace(run, number=number)
        yield from _numbered(by_parent, run.name, f"{number}.")
