"""Finding weights by a name: of a run here, or any other that `cookhouse.weights.names` reads."""

import os
from pathlib import Path

from cookhouse.assets import embedded_names
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.runs.listing.find import find_run, find_runs
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import BaseModelWeights, Weights, find_weights

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
    meant = find_weights(name)
    if not isinstance(meant, BaseModelWeights) or not meant.may_name_run:
        return name
    if may_be_model and not any(name in (run.name, run.number, f"#{run.number}") for run in find_runs(place)):
        return name
    try:
        return str(find_run(name, place))
    except InputError as error:
        raise InputError(
            f"{error}; weights are named by a run, a tinker:// path, or a registered model as NAME@VERSION"
        ) from error


def weights_asked_for(
    name: str, *, has_service: bool, registry: str | None = None, place: Path = RUNS_FOLDER
) -> Weights:
    """Find the weights of a name where nothing but weights is asked for, a base model included: what names none is
    refused.

    A beginning of a run's name is that run, too. `has_service`: a service is configured, and may have base models of
    which nobody here knows.

    Raises:
        UnknownNameError: it names no weights.
        InputError: several runs begin so, or it is a folder without weights in it.
    """
    meant = find_weights(name)
    if not isinstance(meant, BaseModelWeights):
        return meant
    if name and meant.is_folder:
        if not (Path(name) / CONFIG_FILE).is_file():
            raise InputError(f"{name} is a folder without weights in it; {_WAY_OUT}")
        return meant
    runs = find_runs(place)
    is_run = meant.may_name_run and any(name in (run.name, run.number, f"#{run.number}") for run in runs)
    if not is_run:
        if name in embedded_names() or meant.may_be_had(has_service=has_service):
            return meant
        is_run = bool(name) and any(run.name.startswith(name) or run.path.name.startswith(name) for run in runs)
    if is_run:
        return find_weights(str(find_run(name, place)))
    within = f"{place}/" if name.startswith(f"{place}/") else ""
    trained = [f"{within}{run}" for run in trained_runs(place)]
    allowed = [*trained, *_registered_names(registry), *embedded_names()]
    raise UnknownNameError("weights", name, allowed, likely=allowed, way_out=_WAY_OUT)


def trained_runs(place: Path = RUNS_FOLDER) -> list[str]:
    """Names of the runs in a place that have saved weights, the newest first."""
    return [run.name for run in reversed(find_runs(place)) if (run.path / CHECKPOINTS_FILE).is_file()]


def _registered_names(registry: str | None) -> list[str]:
    from cookhouse.registry import Query, open_registry

    return [version.id for version in reversed(open_registry(registry, os.environ).find(Query()))]
