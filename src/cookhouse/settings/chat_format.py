"""The chat format of a run: that of the weights which it goes on with, else the model's own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.registry import names_registered_model, open_registry
from cookhouse.settings.defaults import Default
from cookhouse.weights.names import find_weights

_RUNS = Path("runs")
_REFERENCES = ("reference_model", "kl_reference")
"""Settings that name weights which read what the run's own renderer writes, as those that it begins with do."""


def format_of_weights(name: str, config: Any) -> str | None:
    """The renderer that weights were trained with, as far as files on this machine tell.

    Raises:
        InputError: a registered model is named that there is not.
    """
    registry = open_registry(getattr(config, "registry", None), os.environ) if names_registered_model(name) else None
    log_path = getattr(config, "log_path", None)
    among = (_RUNS,) if log_path is None else (Path(log_path).parent, _RUNS)
    return find_weights(name, registry).origin(among).renderer_name


def asks_references(config: Any) -> bool:
    """Whether weights besides those of the run read what it writes."""
    return any(getattr(config, setting, None) is not None for setting in _REFERENCES)


def of_weights(usual: Callable[[Any], str], words: str) -> Default:
    """The default of `renderer_name`: the format of the weights in `load_checkpoint_path`, else what `usual` says."""

    def value(config: Any) -> str:
        begins_with = getattr(config, "load_checkpoint_path", None)
        trained = None if begins_with is None else format_of_weights(begins_with, config)
        return trained or usual(config)

    return Default(value, f"that of the weights in load_checkpoint_path, else {words}")


def check_format_of_weights(config: Any) -> None:
    """See that weights which read what a run writes were trained in its chat format.

    Raises:
        InputError: some were trained in another, and nobody has set `force_renderer`.
    """
    if config.force_renderer:
        return
    for setting in ("load_checkpoint_path", *_REFERENCES):
        name = getattr(config, setting, None)
        trained = None if name is None else format_of_weights(name, config)
        if trained not in (None, config.renderer_name):
            raise InputError(
                f"{setting} {name} was trained in the chat format {trained}, and this run writes "
                f"{config.renderer_name}; leave renderer_name out or set renderer_name={trained}, or "
                "force_renderer=true to go on in a format that it has not seen"
            )
