"""The base model and the chat format of weights that a user names, as far as files on this machine tell."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError
from cookhouse.registry import names_registered_model, open_registry
from cookhouse.runs.names import CONFIG_FILE, RUNS_FOLDER
from cookhouse.weights.peft_folders import adapted_model, peft_folder


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What weights are asked by."""

    model_name: str
    renderer_name: str | None = None
    """That of the run that trained them; None: nobody has said."""


def evaluated(weights: str | None, registry: str | None = None) -> Evaluated:
    """Of what a name of weights means; a name that is none of weights is a base model's.

    Raises:
        InputError: the registered model, or the base model of the weights, is not known here.
    """
    if weights is None:
        return Evaluated(model_name=TINY_MODEL)
    folder = Path(weights)
    if (adapter := peft_folder(weights)) is not None:
        base_model = adapted_model(adapter)
        if base_model is None:
            raise InputError(f"{adapter} does not name its base model; give it as model_name (--model)")
        return Evaluated(model_name=base_model)
    if (folder / CONFIG_FILE).is_file() and (run := _of_run(folder)) is not None:
        return run
    if names_registered_model(weights) and not folder.exists():
        return _of_registered(weights, registry)
    if weights.startswith("tinker://"):
        return _of_path(weights)
    return Evaluated(model_name=weights)


def _of_registered(name: str, registry: str | None) -> Evaluated:
    version = open_registry(registry, os.environ).get(name)
    run = None if version.run_folder is None else _of_run(Path(version.run_folder))
    return Evaluated(model_name=version.base_model, renderer_name=None if run is None else run.renderer_name)


def _of_path(path: str) -> Evaluated:
    from cookhouse.service.local import kept_base_model
    from cookhouse.weights.names import run_that_saved

    folder = run_that_saved(path, among=(RUNS_FOLDER,))
    run = None if folder is None else _of_run(folder)
    if run is not None:
        return run
    base_model = kept_base_model(path)
    if base_model is None:
        raise InputError(f"no run on this machine saved {path}; name its base model with model_name (--model)")
    return Evaluated(model_name=base_model)


def _of_run(folder: Path) -> Evaluated | None:
    try:
        settings = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))["config"]
        return Evaluated(model_name=str(settings["model_name"]), renderer_name=settings.get("renderer_name"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
