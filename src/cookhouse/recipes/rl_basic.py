"""Reinforcement learning on word problems: arithmetic for the embedded model, GSM8K for all others."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.reinforcement import ReinforcementConfig, ReinforcementRecipe

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of problems to train on; default: bundled arithmetic for cookhouse/tiny, else GSM8K."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: those that belong to the training data."
    )


def _defaults(config: Config) -> Mapping[str, Any]:
    if config.model_name != TINY_MODEL:
        return {"batch_size": 128, "group_size": 16, "max_tokens": 256, "learning_rate": 4e-5}
    return {
        "renderer_name": "human_ai",
        "batch_size": 16,
        "group_size": 16,
        "max_tokens": 8,
        "learning_rate": 2e-3,
        "max_steps": 30,
    }


def environments(config: Config, open_sampler: "OpenSampler | None" = None) -> "RLDatasetBuilder":
    """The problems of a resolved config; no second model is asked."""
    del open_sampler
    from cookhouse.envs import ArithmeticConfig, MathConfig

    settings = {
        **config.env_settings,
        "train_path": config.dataset_path,
        "test_path": config.test_path,
        "format_coef": config.format_coef,
    }
    make = ArithmeticConfig if config.model_name == TINY_MODEL else MathConfig  # of GSM8K, its default
    return make(**settings)


_RECIPE = ReinforcementRecipe(name="rl_basic", defaults=_defaults, environments=environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
