"""The chat format of weights that a run goes on from, or compares with: by default that is the run's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import chz

from cookhouse.registry import ModelRegistry
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.settings import RunSettings
from cookhouse.settings.defaults import is_left_open
from cookhouse.settings.facts import NamedWeights, named_weights
from cookhouse.weights.names import find_weights, is_same_renderer, other_format

C = TypeVar("C", bound=RunSettings)


def in_format_of_weights(config: C, registry: ModelRegistry | None) -> C:
    """With the chat format of the weights that the run begins with, where nobody set one."""
    begun = [named for named in _read_in_format(config) if named.known.purpose == "training"]
    if not begun or not is_left_open(config, "renderer_name"):
        return config
    trained = _renderer_of(begun[0], config, registry)
    return config if trained in (None, config.renderer_name) else chz.replace(config, renderer_name=trained)


def check_formats(config: RunSettings, registry: ModelRegistry | None) -> None:
    """Refuse weights that were trained in another chat format than the run's. Raises `InputError`."""
    if config.force_renderer:
        return
    for named in _read_in_format(config):
        trained = _renderer_of(named, config, registry)
        if trained is not None and not is_same_renderer(trained, config.renderer_name):
            raise other_format(named.setting, named.name, trained, config.renderer_name)


def _read_in_format(config: RunSettings) -> Sequence[NamedWeights]:
    return [named for named in named_weights(config) if named.known.in_own_format]


def _renderer_of(named: NamedWeights, config: RunSettings, registry: ModelRegistry | None) -> str | None:
    folders = [RUNS_FOLDER] if config.log_path is None else [Path(config.log_path).parent, RUNS_FOLDER]
    return find_weights(named.name, registry).origin(folders).renderer_name
