"""Finding weights by a name: of a run here, or any other that `cookhouse.weights.names` reads."""

import os
from pathlib import Path

from cookhouse.assets import adapter_folder, embedded_names
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.models.names import may_be_published, plain_name
from cookhouse.runs.listing.find import begins_run, find_run, find_runs, is_folder
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE

_WAY_OUT = (
    "weights are a run, a tinker:// path, a registered model as NAME@VERSION, a PEFT folder, or a base model as "
    "ORGANIZATION/NAME or by its folder"
)


def weights_named(name: str, *, may_be_model: bool, place: Path = RUNS_FOLDER) -> str:
    """A name of weights in which that of a run is its folder: what numbers and beginnings mean changes with time.

    Whatever else names weights stays as it is; so does what could be a base model, unless a run has exactly that name.

    Raises:
        InputError: as `find_run`, of what can be nothing but a run.
    """
    if "://" in name or "@" in name or is_folder(name) or adapter_folder(name) is not None:
        return name
    if may_be_model and not any(name in (run.name, run.number, f"#{run.number}") for run in find_runs(place)):
        return name
    try:
        return str(find_run(name, place))
    except InputError as error:
        raise InputError(
            f"{error}; weights are named by a run, a tinker:// path, or a registered model as NAME@VERSION"
        ) from error


def weights_asked_for(name: str, *, has_service: bool, registry: str | None = None, place: Path = RUNS_FOLDER) -> str:
    """As `weights_named`, where nothing but weights is asked for, a base model included: what names none is refused.

    A beginning of a run's name is that run, too. `has_service`: a service is configured, and may have base models of
    which nobody here knows.

    Raises:
        UnknownNameError: it names no weights.
        InputError: several runs begin so, or it is a folder without weights in it.
    """
    from cookhouse.registry import names_registered_model

    if name.startswith("tinker://") or names_registered_model(name):
        return name
    found = weights_named(name, may_be_model=True, place=place)
    if found and is_folder(found):
        _check_folder(found)
        return found
    if name in embedded_names() or _may_be_base_model(name, has_service=has_service):
        return name
    if begins_run(name, place):
        return str(find_run(name, place))
    within = f"{place}/" if name.startswith(f"{place}/") else ""
    runs = [f"{within}{run}" for run in trained_runs(place)]
    allowed = [*runs, *_registered_names(registry), *embedded_names()]
    raise UnknownNameError("weights", name, allowed, likely=allowed, way_out=_WAY_OUT)


def trained_runs(place: Path = RUNS_FOLDER) -> list[str]:
    """Names of the runs in a place that have saved weights, the newest first."""
    return [run.name for run in reversed(find_runs(place)) if (run.path / CHECKPOINTS_FILE).is_file()]


def _check_folder(folder: str) -> None:
    from cookhouse.weights.names import BaseModel, find_weights

    if isinstance(find_weights(folder), BaseModel) and not (Path(folder) / CONFIG_FILE).is_file():
        raise InputError(f"{folder} is a folder without weights in it; {_WAY_OUT}")


def _may_be_base_model(name: str, *, has_service: bool) -> bool:
    """Whether a base model might go by a name: it has an organization before it, or is on this machine."""
    if not may_be_published(name) or name.startswith("cookhouse/"):
        return False
    organization, slash, _ = plain_name(name).partition("/")
    if has_service or (slash and not is_folder(organization)):
        return True
    from cookhouse.models.hub import HubPart, current_hub

    try:
        return current_hub().find(plain_name(name), HubPart.CONFIG) is not None
    except InputError:  # no name that a hub could have
        return False


def _registered_names(registry: str | None) -> list[str]:
    from cookhouse.registry import Query, open_registry

    return [version.id for version in reversed(open_registry(registry, os.environ).find(Query()))]
