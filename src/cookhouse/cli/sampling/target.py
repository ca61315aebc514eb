"""What to sample from, as a user names it: a base model, weights, or a run."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from cookhouse.assets import ADAPTER_RENDERER, TINY_MODEL, adapter_folder
from cookhouse.cli.runs.names import NAMING, complete_run, run_folder
from cookhouse.errors import InputError
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.service.local import service_folder

RunOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--run",
        help=f"Run, by {NAMING}: its best checkpoint if it keeps that, else its last.",
        autocompletion=complete_run,
    ),
]
CheckpointOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="Weights: a tinker:// path, a registered model such as sums@1, a PEFT folder, or a run as for --run.",
        autocompletion=complete_run,
    ),
]
ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Base model; default: that of the run or checkpoint, else cookhouse/tiny."),
]
RendererOption: TypeAlias = Annotated[
    str | None, typer.Option("--renderer", help="Chat format; default: the run's, else the model's own.")
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to sample from, and where its service keeps it."""

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

    @property
    def label(self) -> str:
        """What to call it."""
        return self.named or self.sampler_path or self.model_name or TINY_MODEL


def find_target(
    run: str | None, checkpoint: str | None, model: str | None, renderer: str | None, registry: str | None = None
) -> Target:
    """What the options of a command mean together.

    Raises:
        InputError: there is no such run, or it has saved no weights to sample from.
    """
    if run is not None:
        target = _target_of_run(run_folder(run))
    elif checkpoint is None:
        target = _base_model(TINY_MODEL)
    else:
        target = _base_model(None)
    if checkpoint is not None:
        target = _target_of_checkpoint(checkpoint, target, registry)
    return replace(
        target,
        model_name=model or target.model_name,
        renderer_name=renderer or target.renderer_name,
        named=checkpoint or run,
    )


def named_target(name: str, registry: str | None = None) -> Target:
    """What one name means: weights, as they are named everywhere, or else a base model. Raises as `find_target`."""
    from cookhouse.runs.listing.find import weights_named
    from cookhouse.weights.names import BaseModel, find_weights

    found = weights_named(name, may_be_model=True)
    if isinstance(find_weights(found), BaseModel):
        return _base_model(found)
    return replace(_target_of_checkpoint(found, _base_model(None), registry), named=name)


def _base_model(name: str | None) -> Target:
    return Target(model_name=name, sampler_path=None, renderer_name=None, state_dir=None)


def _target_of_checkpoint(name: str, otherwise: Target, registry: str | None) -> Target:
    """The named weights, on the service of the run that saved them if it is on this machine."""
    from cookhouse.registry import names_registered_model, open_registry
    from cookhouse.runs.listing.find import weights_named
    from cookhouse.weights.names import PeftWeights, find_weights

    name = weights_named(name, may_be_model=False)
    models = open_registry(registry, os.environ) if names_registered_model(name) else None
    weights = find_weights(name, models)
    path = weights.path("sampling")
    if isinstance(weights, PeftWeights):
        model_name = otherwise.model_name or weights.origin(()).base_model
        renderer_name = otherwise.renderer_name if adapter_folder(name) is None else ADAPTER_RENDERER
        return replace(
            otherwise,
            sampler_path=path,
            adapter=weights.folder.resolve(),
            model_name=model_name,
            renderer_name=renderer_name,
        )
    saved_by = weights.saved_by((RUNS_FOLDER,)) if otherwise.state_dir is None else None
    return replace(otherwise if saved_by is None else _target_of_run(saved_by), sampler_path=path)


def _target_of_run(folder: Path) -> Target:
    """The last weights that a run saved for sampling.

    Raises:
        InputError: the folder holds no run, or one that has saved nothing yet.
    """
    from cookhouse.weights.names import find_weights

    config_file = folder / CONFIG_FILE
    if not config_file.exists():
        raise InputError(f"{folder} is not a run folder: it has no config.json; name one such as runs/...")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))["config"]
        model_name, renderer_name = str(config["model_name"]), str(config["renderer_name"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{config_file} is not the config of a run ({error}); name another folder") from error
    return Target(
        model_name=model_name,
        sampler_path=find_weights(str(folder)).path("sampling"),
        renderer_name=renderer_name,
        state_dir=service_folder(folder),
    )
