"""Reinforcement learning in any environment of the library `verifiers`."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.recipes.reinforcement import ReinforcementConfig, ReinforcementRecipe

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    env_id: str = chz.field(default="gsm8k", doc="Name of an installed environment.")
    env_args: str = chz.field(default="{}", doc="What the environment is loaded with, a JSON object.")


def _defaults(config: Config) -> Mapping[str, Any]:
    del config
    return {"batch_size": 32, "group_size": 8, "max_tokens": 512, "learning_rate": 4e-5}


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import VerifiersConfig

    return VerifiersConfig(**{**config.env_settings, "env_id": config.env_id, "env_args": config.env_args})


_RECIPE = ReinforcementRecipe(name="verifiers_rl", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
