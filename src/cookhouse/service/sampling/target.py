"""Targets to sample from, as a user names them: a base model, weights, or a run."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError
from cookhouse.models.names import plain_name
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.service.connection import configured_service
from cookhouse.service.local import service_folder


@dataclass(frozen=True, kw_only=True)
class Target:
    """Weights to sample from, and the place of their service."""

    model_name: str | None
    """None: the one that the checkpoint was trained from."""
    sampler_path: str | None
    renderer_name: str | None
    state_dir: Path | None
    """State of the embedded service that trained it; None: none is known on this machine."""
    adapter: Path | None = None
    """The PEFT folder that the weights are in, if they are in one."""
    named: str | None = None
    """How the user named it."""
    note: str | None = None
    """What to say of it before it is loaded."""

    @property
    def label(self) -> str:
        """Name for people."""
        return self.named or self.sampler_path or self.model_name or TINY_MODEL

    def check_kept_here(self) -> None:
        """Raises `InputError` where no service of this machine has the weights."""
        if self.sampler_path is None or self.adapter is not None:
            return
        if self.state_dir is None or not self.state_dir.is_dir():
            raise InputError(
                f"{self.sampler_path} is not on this machine's embedded service; "
                "name the run that saved it, or set TINKER_BASE_URL and TINKER_API_KEY to the service that has it"
            )


def find_target(
    weights: str | None,
    model: str | None = None,
    renderer: str | None = None,
    registry: str | None = None,
    *,
    place: Path = RUNS_FOLDER,
) -> Target:
    """Find the target that names mean together: weights, on a base model; without weights, the base model alone. Runs
    are those in `place`.

    Raises:
        UnknownNameError: the first names no weights.
        InputError: there are none to sample from, or they were trained on another base model.
    """
    target = _base_model(model or TINY_MODEL) if weights is None else _named_target(weights, registry, place)
    if weights is not None and model is not None:
        target = _on_model(target, weights, model)
    return replace(target, renderer_name=renderer or target.renderer_name, named=weights)


def _named_target(name: str, registry: str | None, place: Path) -> Target:
    """Weights, on the service of the run that saved them if it is on this machine; or a base model."""
    from cookhouse.runs.listing.weights import weights_asked_for
    from cookhouse.weights.names import BaseModelWeights, PeftWeights, with_registry

    has_service = configured_service(os.environ) is not None
    asked = weights_asked_for(name, has_service=has_service, registry=registry, place=place)
    weights = with_registry(asked, registry)
    if isinstance(weights, BaseModelWeights):
        return _base_model(weights.name)
    target = Target(model_name=None, sampler_path=weights.path("sampling"), renderer_name=None, state_dir=None)
    if isinstance(weights, PeftWeights):
        origin = weights.origin(())
        adapter = weights.folder.resolve()
        return replace(target, adapter=adapter, model_name=origin.base_model, renderer_name=origin.renderer_name)
    saved_by = weights.saved_by((place,))
    if saved_by is None:
        return replace(target, model_name=weights.origin(()).base_model)
    return replace(_target_of_run(saved_by), sampler_path=target.sampler_path)


def _on_model(target: Target, weights: str, model: str) -> Target:
    """A target on a base model that the user names, too.

    Raises:
        InputError: it is of another one. Of a PEFT folder nobody can tell: one that was moved names a path of before.
    """
    trained_on = target.model_name
    if trained_on is None or plain_name(trained_on) == plain_name(model):
        return replace(target, model_name=model)
    if target.sampler_path is None:
        raise InputError(f"{weights} is a base model itself, and --model {model} is another; give one of them")
    if target.adapter is not None:
        note = f"{weights} says that it was trained on {trained_on}; it is loaded on {model}"
        return replace(target, model_name=model, note=note)
    raise InputError(
        f"{weights} was trained on {trained_on}, and its weights fit no other base model; leave out --model {model}"
    )


def _base_model(name: str) -> Target:
    return Target(model_name=name, sampler_path=None, renderer_name=None, state_dir=None)


def _target_of_run(folder: Path) -> Target:
    """The last weights that a run saved for sampling.

    Raises:
        InputError: the folder holds no run, or one that has saved nothing yet.
    """
    from cookhouse.weights.names import find_weights

    config_file = folder / CONFIG_FILE
    if not config_file.exists():
        raise InputError(f"{folder} is not a run directory: it has no config.json; name one such as runs/...")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))["config"]
        model_name, renderer_name = str(config["model_name"]), str(config["renderer_name"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{config_file} is not the config of a run ({error}); name another folder") from error
    return Target(
        model_name=model_name,
        sampler_path=find_weights(str(folder)).path("sampling"),
        renderer_name=renderer_name,
        state_dir=service_folder(folder),
    )
