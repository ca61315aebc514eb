"""Whether a run may have its folder: make it, empty it, or go on in it; found out before anything is done."""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cookhouse.data import DataSource, Fingerprint, fingerprint_of
from cookhouse.errors import InputError
from cookhouse.files import file_errors
from cookhouse.runs.lock import busy, is_held
from cookhouse.runs.names import CONFIG_FILE, DATA_FILE, LOCK_FILE
from cookhouse.settings.facts import NamedWeights

logger = logging.getLogger(__name__)

_CHOICES = ("delete", "resume", "raise")
BY_DATA = "by the data"
"""Origin of a setting that nobody named and that the data decided, as they do again when the run is resumed."""


class FolderChoice(StrEnum):
    """What becomes of a run folder when a run starts."""

    CREATE = "create"
    DELETE = "delete"
    RESUME = "resume"


@dataclass(frozen=True, kw_only=True)
class FolderSpec:
    """Which folder a run writes to, and what to do if it is there already."""

    path: Path
    recipe: str
    config: Mapping[str, Any]
    """Every field, resolved; recorded in config.json."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where the value of each came from; recorded there, too."""
    left_open: Collection[str] = ()
    """Fields that nobody set. A resumed run has what its data decided of them."""
    typed: str | None = None
    """The recipe as a person named it; recorded in run.json, as are the adapters' name."""
    adapters: str | None = None
    seed: int
    behavior: str
    """delete, resume, raise or ask."""
    free_fields: Collection[str]
    """Fields of the config that a resumed run may change; recorded in config.json."""
    weights: Sequence[NamedWeights] = ()
    """What the config names; recorded in config.json."""
    data: Mapping[str, DataSource] = field(default_factory=dict)
    """Files and data sets that the run reads, by what for; their fingerprints are recorded in data.json, and a resume
    on those with others is refused."""
    ask: Callable[[str], str] | None = None
    synthetic: tuple[str, ...] = ()
    """Ports whose adapters made something up, in this run or before it was resumed; recorded in config.json."""


def choose_folder(spec: FolderSpec) -> FolderChoice:
    """What to do with the folder, before anything is done: the user is asked here if the spec says so.

    Raises:
        InputError: the folder is there and may not be used, or a run is going on in it, or it holds another run, or one
            of other data.
    """
    if is_held(spec.path):
        raise busy(spec.path)
    with file_errors(spec.path):
        choice = FolderChoice(_choose(spec))
    if choice is FolderChoice.RESUME:
        _check_same_run(spec)
        _check_same_data(spec)
    return choice


def _choose(spec: FolderSpec) -> str:
    if spec.path.exists() and not spec.path.is_dir():
        raise InputError(f"log_path {spec.path} is a file; choose a folder")
    if not spec.path.exists() or all(path.name == LOCK_FILE for path in spec.path.iterdir()):
        return FolderChoice.CREATE
    choice = spec.behavior
    if choice == "ask":
        if spec.ask is None:
            raise InputError(
                f"run folder {spec.path} exists, and there is no terminal to ask on; "
                "set behavior_if_log_dir_exists to delete or resume, or choose another log_path"
            )
        choice = spec.ask(f"run folder {spec.path} exists; what now?")
    if choice not in _CHOICES:
        raise InputError(f"{choice!r} is no way to treat an existing run folder; allowed: {', '.join(_CHOICES)}")
    if choice == "raise":
        raise InputError(
            f"run folder {spec.path} exists; choose another log_path, "
            "or set behavior_if_log_dir_exists to delete or resume"
        )
    if not (spec.path / CONFIG_FILE).exists():
        raise InputError(f"{spec.path} holds files but no run ({CONFIG_FILE} is missing); choose another log_path")
    return choice


def _check_same_run(spec: FolderSpec) -> None:
    path = spec.path / CONFIG_FILE
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        before, recipe = dict(recorded["config"]), recorded["recipe"]
        origins = dict(recorded.get("origins") or {})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the config of a run ({error}); choose another log_path") from error
    if recipe != spec.recipe:
        raise InputError(f"{spec.path} holds a run of {recipe}, not of {spec.recipe}; choose another log_path")
    for name, value in spec.config.items():
        is_decided = origins.get(name) == BY_DATA and name in spec.left_open
        if name in before and name not in spec.free_fields and not is_decided and before[name] != value:
            raise InputError(
                f"{name}={value!r}, but the run in {spec.path} was started with {before[name]!r}, and going on with "
                "another would be another run; leave it as it was, or choose another log_path"
            )


def decided_by_data(folder: Path) -> dict[str, str]:
    """Of the settings that the data decided in the run that a folder holds: that they did."""
    recorded = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")).get("origins", {})
    return {name: BY_DATA for name, origin in recorded.items() if origin == BY_DATA}


def recorded_synthetic(folder: Path) -> tuple[str, ...]:
    """Ports whose adapters made something up in the run that a folder holds."""
    recorded = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")).get("synthetic", ())
    return tuple(port for port in recorded if isinstance(port, str)) if isinstance(recorded, list) else ()


def _check_same_data(spec: FolderSpec) -> None:
    path = spec.path / DATA_FILE
    if not spec.data:
        return
    if not path.exists():
        logger.warning("%s does not exist: cannot check whether the data has changed", path)
        return
    try:
        recorded = {
            name: Fingerprint(**{**value, "marks": tuple(value["marks"])})
            for name, value in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not hold fingerprints of data ({error}); choose another log_path") from error
    for name in recorded.keys() & spec.data.keys():
        changes = recorded[name].changes_to(fingerprint_of(spec.data[name], stride=recorded[name].stride))
        if changes is not None:
            raise InputError(
                f"{spec.data[name]} has changed since the run in {spec.path} was started: {changes}. Going on with it "
                "would be another run; restore it, or choose another log_path"
            )
