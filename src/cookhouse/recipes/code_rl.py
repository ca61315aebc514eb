"""Reinforcement learning on programs, rewarded by running tests: one-line functions, or DeepCoder."""

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

    env: Literal["python_functions", "deepcoder"] | None = chz.field(
        default=None, doc="Problems; default: python_functions for cookhouse/tiny, else deepcoder."
    )
    dataset_path: str | None = chz.field(
        default=None, doc="JSONL with the fields of the problems to train on; default: bundled, or from the hub."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: bundled, or HumanEval from the hub."
    )
    code_reward: Literal["all", "fraction"] = chz.field(
        default="all", doc="all: every test must pass; fraction: the share that passes."
    )
    test_seconds: float = chz.field(default=6.0, doc="Time that each test of a program may take.")


def _defaults(config: Config) -> Mapping[str, Any]:
    if config.model_name != TINY_MODEL:
        is_ppo = config.loss_fn in (None, "ppo")
        return {
            "env": "deepcoder",
            "batch_size": 100,
            "group_size": 4,
            "max_tokens": 1024,
            "learning_rate": 1e-5,
            "loss_fn": "ppo",
            "clip_low": 0.8 if is_ppo else None,
            "clip_high": 1.2 if is_ppo else None,
            "ppo_epochs": 4 if is_ppo else 1,
            "advantage": "gae",
        }
    return {
        "env": "python_functions",
        "renderer_name": "human_ai",
        "batch_size": 16,
        "group_size": 16,
        "max_tokens": 32,
        "learning_rate": 2e-3,
        "max_steps": 30,
    }


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import DeepCoderConfig, PythonFunctionsConfig

    make = PythonFunctionsConfig if config.env == "python_functions" else DeepCoderConfig
    settings = {
        **config.env_settings,
        "train_path": config.dataset_path,
        "test_path": config.test_path,
        "format_coef": config.format_coef,
        "code_reward": config.code_reward,
        "timeout_seconds": config.test_seconds,
    }
    return make(**settings)


_RECIPE = ReinforcementRecipe(name="code_rl", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
