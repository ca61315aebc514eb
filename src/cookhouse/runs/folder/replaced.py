"""A run whose folder another takes: put aside within it, deleted once the other has begun, put back if it never does.

    .moving      a part of what lay in the folder; the rest is still next to it
    .replaced    all that lay there; what is next to it is of the new run
    .deleted     what is going

What a killed process left is one of these, so that the next one knows what to do (`settle_replaced`).
"""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cookhouse.data.sources.files import pattern_files
from cookhouse.errors import InputError
from cookhouse.files import file_errors
from cookhouse.runs.listing.deletion import check_deletable, needs_of, saved_paths
from cookhouse.runs.lock import hold, is_held
from cookhouse.runs.names import LOCK_FILE, METRICS_FILE, RUNS_FOLDER

if TYPE_CHECKING:
    from cookhouse.registry import ModelRegistry

logger = logging.getLogger(__name__)

_MOVING = ".moving"
_REPLACED = ".replaced"
_DELETED = ".deleted"
_ASIDE = (_MOVING, _REPLACED, _DELETED)


def check_replaceable(folder: Path, config: Mapping[str, Any], registry: "ModelRegistry") -> None:
    """Refuse what `cookhouse runs delete` would, and what the settings of the new run name.

    Raises:
        InputError: it is no run, or a link to one, or in use; its weights are registered, or others were started from
            them; or the new run reads something in it.
    """
    check_deletable(folder)
    way_out = "choose another log_path"
    for setting, value in config.items():
        if setting != "log_path" and (text := _text_within(value, folder)) is not None:
            raise InputError(
                f"{setting} names {text}, which lies in {folder}, and behavior_if_log_dir_exists=delete would delete "
                f"it; move it, or {way_out}"
            )
    if needs := needs_of([folder], RUNS_FOLDER, registry)[folder]:
        raise InputError(
            f"{'; '.join(needs)}; {way_out}, or delete the run yourself: cookhouse runs delete {folder} --force"
        )


def put_aside(folder: Path) -> None:
    """Move all that lies in a folder but its lock, which is held, to where `settle_replaced` finds it."""
    moving = folder / _MOVING
    moving.mkdir()
    _move_all(folder, moving)
    moving.rename(folder / _REPLACED)


def delete_replaced(folder: Path) -> None:
    """Delete what was put aside, if something was: nothing can refuse the new run any more."""
    if not is_replacing(folder):
        return
    going = (folder / _REPLACED).rename(folder / _DELETED)
    try:
        shutil.rmtree(going)
    except OSError as error:
        logger.warning("%s is left of the run that was deleted: %s", going, error)


def is_replacing(folder: Path) -> bool:
    """True if a run lies aside in a folder."""
    return (folder / _REPLACED).is_dir()


def settle_replaced(folder: Path) -> bool:
    """Put back what lies aside in a folder in which no run goes on, or delete it if the new run has trained something.

    Returns whether it was put back.

    Raises:
        InputError: the folder cannot be written.
    """
    if not any((folder / name).is_dir() for name in _ASIDE) or is_held(folder):
        return False
    with file_errors(folder), hold(folder):
        if (folder / _DELETED).is_dir():
            shutil.rmtree(folder / _DELETED)
        if is_replacing(folder) and _has_trained(folder):
            delete_replaced(folder)
        if is_replacing(folder):
            _remove_new(folder)
            (folder / _REPLACED).rename(folder / _MOVING)
        moving = folder / _MOVING
        if not moving.is_dir():
            return False
        _move_all(moving, folder)
        moving.rmdir()
    return True


@contextmanager
def settling(folder: Path) -> Iterator[None]:
    """Settles what lies aside in a folder when all that wrote to it is gone; whoever hears of an error hears of it."""
    try:
        yield
    except BaseException as error:
        if settle_replaced(folder):
            error.add_note(f"the run that was in {folder} is there as before")
        raise
    else:
        settle_replaced(folder)


def _text_within(value: Any, folder: Path) -> str | None:
    """The first of the texts in a value that names something in a folder: a path, or weights that were saved there."""
    whole, saved = folder.resolve(), saved_paths(folder)
    return next((text for text in _texts(value) if text in saved or _is_path_within(text, whole)), None)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value, *value.split(","))
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _texts(each)


def _is_path_within(text: str, whole: Path) -> bool:
    """True if it is the path of something there, or a pattern that stands for a file there; also before a `:NAME`,
    `@NAME` or `#SPLIT`, or as a `file://` URL.
    """
    names = {text, *(text.rpartition(mark)[0] for mark in ":@#")}
    if text.startswith("file://"):
        path = text.removeprefix("file://")
        names |= {path, unquote(path)}
    return any(_exists_within(name, whole) for name in names if name)


def _exists_within(name: str, whole: Path) -> bool:
    try:
        path = Path(name).expanduser()
        named = [path] if path.exists() else pattern_files(path)
        return any(each.resolve().is_relative_to(whole) for each in named)
    except (OSError, ValueError, RuntimeError):  # what is no path at all
        return False


def _has_trained(folder: Path) -> bool:
    """True if the new run, or one that it consists of, has written a metric."""
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _ASIDE]
        if METRICS_FILE in files and Path(where, METRICS_FILE).stat().st_size:
            return True
    return False


def _move_all(source: Path, target: Path) -> None:
    for entry in list(os.scandir(source)):
        if entry.name not in (*_ASIDE, LOCK_FILE):
            Path(entry.path).rename(target / entry.name)


def _remove_new(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if entry.name in (*_ASIDE, LOCK_FILE):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
