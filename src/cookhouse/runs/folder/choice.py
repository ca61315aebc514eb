"""Choice of a run's folder: make it, replace another's, or resume in it; decided before anything is written."""

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cookhouse.data import DataSource, Fingerprint, fingerprint_of
from cookhouse.errors import InputError
from cookhouse.files import file_errors
from cookhouse.models.base_files import BaseFiles, changes_between, files_of_model
from cookhouse.runs.folder.replaced import check_replaceable, settle_replaced
from cookhouse.runs.lock import busy, is_held
from cookhouse.runs.names import BASE_FILE, CONFIG_FILE, DATA_FILE, LOCK_FILE
from cookhouse.settings.facts import NamedWeights
from cookhouse.settings.rows import ROWS_FIELDS

if TYPE_CHECKING:
    from cookhouse.registry import ModelRegistry

logger = logging.getLogger(__name__)

_CHOICES = ("delete", "resume", "raise")
BY_DATA = "by the data"
"""Origin of a setting that nobody named and that the data decided, as they do again when the run is resumed."""


def _default_registry() -> "ModelRegistry":
    from cookhouse.registry import open_registry

    return open_registry(None, os.environ)


class FolderChoice(StrEnum):
    """Treatment of a run directory when a run starts."""

    CREATE = "create"
    DELETE = "delete"
    RESUME = "resume"


@dataclass(frozen=True, kw_only=True)
class FolderSpec:
    """Folder that a run writes to, and what to do if it exists already."""

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
    base_models: Callable[[], Sequence[str]] | None = None
    """Models that a service of the run's own computes; what their weights hold is recorded in base.json, and a resume
    on others is refused. None: it has no such service."""
    ask: Callable[[str], str] | None = None
    synthetic: tuple[str, ...] = ()
    """Ports whose adapters made something up, in this run or before it was resumed; recorded in config.json."""
    registry: "Callable[[], ModelRegistry]" = _default_registry
    """Opens what may know of the weights of a run that is to be replaced."""

    def check_replaceable(self) -> None:
        """See that this run may take the place of the one in its folder. Raises as the function of that name."""
        check_replaceable(self.path, self.config, self.registry())


def choose_folder(spec: FolderSpec) -> FolderChoice:
    """Choose what to do with the folder, before anything is done: the user is asked here if the spec says so.

    Raises:
        InputError: the folder is there and may not be used, or a run is going on in it, or it holds another run, or one
            of other data, or one that must not be deleted.
    """
    if is_held(spec.path):
        raise busy(spec.path)
    with file_errors(spec.path):
        if settle_replaced(spec.path):
            logger.warning("a run that was to replace the one in %s was killed before it began; it is back", spec.path)
        choice = FolderChoice(_choose(spec))
    if choice is FolderChoice.DELETE and spec.behavior == choice:  # who is asked may say resume as well
        spec.check_replaceable()
    if choice is FolderChoice.RESUME:
        _check_same_run(spec)
        _check_same_data(spec)
        if spec.base_models is not None:
            _check_same_base(spec)
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
                f"run directory {spec.path} exists, and there is no terminal to ask on; "
                "set behavior_if_log_dir_exists to delete or resume, or choose another log_path"
            )
        choice = spec.ask(f"run directory {spec.path} exists; what now?")
    if choice not in _CHOICES:
        raise InputError(f"{choice!r} is no way to treat an existing run directory; allowed: {', '.join(_CHOICES)}")
    if choice == "raise":
        raise InputError(
            f"run directory {spec.path} exists; choose another log_path, "
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
            if name in ROWS_FIELDS and _is_compared(spec, before[name], value):
                continue
            raise InputError(
                f"{name}={value!r}, but the run in {spec.path} was started with {before[name]!r}, and going on with "
                "another would be another run; leave it as it was, or choose another log_path"
            )


def _is_compared(spec: FolderSpec, before: object, now: object) -> bool:
    """True if a name of data may be another: it is that of one file, whose content is compared with what there was."""
    are_files = all(isinstance(name, str) and not {",", ":"} & set(name) for name in (before, now))
    path = spec.path / DATA_FILE
    if not are_files or not Path(str(now)).is_file() or not path.is_file():
        return False
    return set(_recorded_data(path)) == set(spec.data)


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
    recorded = _recorded_data(path)
    for name in recorded.keys() & spec.data.keys():
        changes = recorded[name].changes_to(fingerprint_of(spec.data[name], stride=recorded[name].stride))
        if changes is not None:
            raise InputError(
                f"{spec.data[name]} has changed since the run in {spec.path} was started: {changes}. Going on with it "
                "would be another run; restore it, or choose another log_path"
            )


def _recorded_data(path: Path) -> dict[str, Fingerprint]:
    try:
        return {
            name: Fingerprint(**{**value, "marks": tuple(value["marks"])})
            for name, value in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not hold fingerprints of data ({error}); choose another log_path") from error


def recorded_base(folder: Path) -> dict[str, BaseFiles]:
    """The files of weights that a run recorded, by model; none where it recorded none.

    Raises:
        InputError: base.json is not what a run writes.
    """
    path = folder / BASE_FILE
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): {str(file): str(mark) for file, mark in files.items()} for name, files in recorded.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} does not hold what weights were ({error}); choose another log_path") from error


def _check_same_base(spec: FolderSpec) -> None:
    for name, before in recorded_base(spec.path).items():
        changes = changes_between(before, files_of_model(name))
        if changes is not None:
            raise InputError(
                f"the weights of {name} have changed since the run in {spec.path} was started: {changes}. Going on "
                "with them would be another run; put the old ones back, or choose another log_path"
            )
