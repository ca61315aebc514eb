"""Weights that may be asked on the page: runs of its place with their checkpoints, registered and base models."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cookhouse.assets import ADAPTER_FOLDERS, embedded_names
from cookhouse.errors import UnknownNameError
from cookhouse.models.names import plain_name
from cookhouse.runs.listing.find import FoundRun
from cookhouse.service.connection import configured_service
from cookhouse.service.sampling.target import Target, find_target
from cookhouse.view.place import Place
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import is_no_path_here

_MAX_SHOWN = 200
_WAY_OUT = (
    "asked here are runs of this place, their checkpoints by their tinker:// paths, registered models as NAME@VERSION, "
    "and base models that runs were trained on"
)


@dataclass(frozen=True, kw_only=True)
class WeightsChoice:
    """A name to choose."""

    name: str
    note: str
    """What it is."""


def choices(place: Place) -> list[WeightsChoice]:
    """Names to choose from: runs that have saved weights, the newest first, and base models."""
    runs = place.runs()
    trained = [
        WeightsChoice(name=run.name, note=f"run #{run.number}")
        for run in reversed(runs)
        if (run.path / CHECKPOINTS_FILE).is_file()
    ]
    return [*trained[:_MAX_SHOWN], *(WeightsChoice(name=name, note="base model") for name in _base_models(runs))]


def shown_pair(names: Sequence[str], place: Place) -> tuple[str, str]:
    """The names that a form begins with: two as they are given; one after the base model that it was trained on. None:
    the newest run that has saved weights. Raises as `named_pair`.
    """
    if len(names) > 1:
        named_pair(names[:2], place)
        return names[0], names[1]
    name = names[0] if names else next(choice.name for choice in choices(place))
    target = named_target(name, place)
    has_base = target.sampler_path is not None and target.model_name is not None
    return (target.model_name or "", name) if has_base else (name, "")


def named_pair(names: Sequence[str], place: Place) -> list[Target]:
    """The weights of names. Those on one base model are asked in one chat format: a base model is asked as the run that
    was trained on it.

    Raises:
        UnknownNameError: a name is none of those that can be asked here.
        InputError: it has no weights to sample from.
    """
    targets = [named_target(name, place) for name in names]
    models = {target.model_name and plain_name(target.model_name) for target in targets}
    formats = [target.renderer_name for target in targets if target.renderer_name is not None]
    if len(models) == 1 and formats:
        return [replace(target, renderer_name=target.renderer_name or formats[0]) for target in targets]
    return targets


def named_target(name: str, place: Place) -> Target:
    """The weights of a name, which is compared with those there are and never made a path. Raises as `named_pair`."""
    target = _found(name, place)
    if configured_service(os.environ) is None:
        target.check_kept_here()
    return target


def _found(name: str, place: Place) -> Target:
    if is_no_path_here(name):
        return find_target(name, place=place.folder)
    runs = place.runs()
    run = next((run for run in runs if run.name == name), None)
    if run is not None:
        return replace(find_target(str(run.path), place=place.folder), named=name)
    base_models = _base_models(runs)
    if name in base_models:
        weights = name if name in ADAPTER_FOLDERS else None
        return replace(find_target(weights, None if weights else name, place=place.folder), named=name)
    likely = [choice.name for choice in choices(place)]
    raise UnknownNameError(
        "weights", name, [*(run.name for run in runs), *base_models], likely=likely, way_out=_WAY_OUT
    )


def _base_models(runs: Sequence[FoundRun]) -> list[str]:
    """Base models that runs were trained on, and those of the package."""
    named = [run.record.get("config", {}).get("model_name") for run in runs]
    return [*dict.fromkeys([*(name for name in named if isinstance(name, str) and name), *embedded_names()])]
