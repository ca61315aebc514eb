"""The base model and the chat format of weights that a user names, as far as files on this machine tell."""

import os
from dataclasses import replace

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError
from cookhouse.registry import names_registered_model, open_registry
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.weights.names import CheckpointPath, Origin, find_weights


def origin_of(weights: str, registry: str | None = None) -> Origin:
    """What named weights were trained on. Raises `InputError` for a registered model that there is not."""
    models = open_registry(registry, os.environ) if names_registered_model(weights) else None
    named = find_weights(weights, models)
    found = named.origin((RUNS_FOLDER,))
    if found.base_model is None and isinstance(named, CheckpointPath):
        from cookhouse.service.local import kept_base_model

        return replace(found, base_model=kept_base_model(weights))
    return found


def base_model_of(weights: str | None, registry: str | None = None) -> str:
    """The base model of named weights; None means the embedded one.

    Raises:
        InputError: the registered model, or the base model, is not known here.
    """
    if weights is None:
        return TINY_MODEL
    base_model = origin_of(weights, registry).base_model
    if base_model is None:
        raise InputError(f"nothing on this machine names the base model of {weights}; give it as model_name (--model)")
    return base_model
