"""Reinforcement learning on mathematics: arithmetic, GSM8K, MATH, DeepMath or Polaris."""

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

    env: Literal["arithmetic", "gsm8k", "math", "deepmath", "polaris"] | None = chz.field(
        default=None, doc="Problems; default: arithmetic for cookhouse/tiny, else gsm8k."
    )
    dataset_path: str | None = chz.field(
        default=None, doc="JSONL with the fields of the problems to train on; default: bundled, or from the hub."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL with the fields of the held-out problems; default: bundled, or from the hub."
    )


def _defaults(config: Config) -> Mapping[str, Any]:
    if config.model_name != TINY_MODEL:
        return {"env": "gsm8k", "batch_size": 100, "group_size": 4, "max_tokens": 512, "learning_rate": 1e-5}
    return {
        "env": "arithmetic",
        "renderer_name": "human_ai",
        "batch_size": 48,
        "group_size": 4,
        "max_tokens": 8,
        "learning_rate": 2e-3,
        "max_steps": 30,
    }


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import ArithmeticConfig, MathConfig

    settings = {
        **config.env_settings,
        "train_path": config.dataset_path,
        "test_path": config.test_path,
        "format_coef": config.format_coef,
    }
    if config.env == "arithmetic":
        return ArithmeticConfig(**settings)
    return MathConfig(**{**settings, "dataset": config.env})


_RECIPE = ReinforcementRecipe(name="math_rl", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
