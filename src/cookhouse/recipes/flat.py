"""Frame around the loop of a flat file: its settings, and what makes it a recipe."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import chz
import numpy as np

from cookhouse.errors import InputError
from cookhouse.recipes.recipe import Recipe
from cookhouse.registry import Descent
from cookhouse.settings import (
    AdapterSettings,
    OptimizerSettings,
    RegistrationSettings,
    RunSettings,
    ShrinkSettings,
    read_if,
)

if TYPE_CHECKING:
    from cookhouse.training import Connect
    from cookhouse.workflows import FlatState, Workflow


WITHOUT_SWEEP = read_if(lambda config: not config.sweep, "without sweep")


@chz.chz
class FlatSettings(RunSettings, AdapterSettings, OptimizerSettings, RegistrationSettings, ShrinkSettings):
    """Settings of every flat file."""


C = TypeVar("C", bound=FlatSettings)


def flat_recipe(
    *,
    name: str,
    description: str,
    config_class: type[C],
    load: Callable[[C], Any],
    train: "Callable[[C, Any, Path, Connect], Awaitable[str]]",
    descent: Descent,
) -> Recipe[C]:
    """A recipe of the two functions that `cookhouse.workflows.flat` runs; `descent` is from the base model."""

    def workflow(config: C) -> "Workflow[FlatState]":
        from cookhouse.workflows import flat_workflow

        return flat_workflow(config, Path(inspect.getfile(load)), load, train, descent)

    return Recipe(name=name, description=description, config_class=config_class, workflow=workflow)


def log_grid(text: str) -> list[float]:
    """Numbers evenly spaced on a log scale, from `FROM,TO,COUNT`. Raises `InputError` if it is none."""
    try:
        low, high, count = text.split(",")
        bounds, number = (float(low), float(high)), int(count)
    except ValueError:
        bounds, number = (0.0, 0.0), 0
    if not 0 < bounds[0] < bounds[1] < float("inf") or number < 2:
        raise InputError(f"sweep is {text!r}; write FROM,TO,COUNT, as in 1e-4,1e-2,5: rising, and at least two")
    return [float(f"{point:.6g}") for point in np.geomspace(*bounds, number)]
