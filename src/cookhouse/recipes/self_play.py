"""Reinforcement learning by self-play: a race of numbers against itself, measured against a scripted player."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.reinforcement import ReinforcementConfig, ReinforcementRecipe

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    target: int = chz.field(default=31, doc="The number that wins.")
    max_add: int = chz.field(default=3, doc="How far above the last number the next one may be.")
    opponent: Literal["random", "perfect"] = chz.field(default="random", doc="Scripted player of the evaluation.")


def _defaults(config: Config) -> Mapping[str, Any]:
    if config.model_name != TINY_MODEL:
        return {"batch_size": 32, "group_size": 8, "max_tokens": 64, "learning_rate": 3e-5}
    return {
        "renderer_name": "human_ai",
        "batch_size": 8,
        "group_size": 8,
        "max_tokens": 8,
        "learning_rate": 1e-3,
        "max_steps": 40,
    }


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import SelfPlayConfig

    settings = {
        **config.env_settings,
        "target": config.target,
        "max_add": config.max_add,
        "opponent": config.opponent,
        # The embedded model reads no rules: they would only be more to read.
        "with_rules": config.model_name != TINY_MODEL,
    }
    return SelfPlayConfig(**settings)


_RECIPE = ReinforcementRecipe(name="self_play", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
