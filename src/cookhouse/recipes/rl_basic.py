"""Reinforcement learning on word problems: arithmetic for the embedded model, GSM8K for all others."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.reinforcement import (
    ReinforcementConfig,
    check,
    dry_run_plan,
    execute_plan,
    make_plan,
    workflow,
)
from cookhouse.recipes.training_config import decide

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import DryRunReport, OpenSampler, ReinforcementPlan, RunResult

__all__ = ["Config", "dry_run", "execute", "resolve", "workflow"]

_NAME = "rl_basic"
_TINY = {
    "renderer_name": "human_ai",
    "batch_size": 16,
    "group_size": 16,
    "max_tokens": 8,
    "learning_rate": 2e-3,
    "max_steps": 60,
}
_OTHERS = {"batch_size": 128, "group_size": 16, "max_tokens": 256, "learning_rate": 4e-5}


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of problems to train on; default: bundled arithmetic for cookhouse/tiny, else GSM8K."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: those that belong to the training data."
    )


def resolve(config: Config) -> Config:
    """The config with every default decided; one that is resolved already comes back as it is.

    Raises:
        InputError: a value is out of range, or does not go with the others.
    """
    decided = decide(config, _NAME, **(_TINY if config.model_name == TINY_MODEL else _OTHERS))
    check(decided)
    return decided


async def execute(config: Config, *, ask: Callable[[str], str] | None, **given: Any) -> "RunResult":
    """Run a resolved config. Raises as `cookhouse.recipes.run`."""
    return await execute_plan(_plan(config, ask), num_samples=config.num_samples, **given)


def dry_run(config: Config) -> "DryRunReport":
    """Read and count, by the stages that a run begins with."""
    return dry_run_plan(_plan(resolve(config), lambda _: "delete"))


def _plan(config: Config, ask: Callable[[str], str] | None) -> "ReinforcementPlan":
    def make_data(open_sampler: "OpenSampler") -> "RLDatasetBuilder":
        del open_sampler
        return data(config)

    return make_plan(config, _NAME, make_data, ask)


def data(config: Config) -> "RLDatasetBuilder":
    """The environments of a resolved config."""
    from cookhouse.envs.arithmetic import ArithmeticConfig

    make = ArithmeticConfig
    return make(
        model_name=config.model_name,
        renderer_name=config.renderer_name,
        force_renderer=config.force_renderer,
        batch_size=config.batch_size,
        group_size=config.group_size,
        n_batches=config.n_batches,
        n_train_samples=config.n_train_samples,
        seed=config.seed,
        train_path=config.dataset_path,
        test_path=config.test_path,
        format_coef=config.format_coef,
    )


if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _NAME, *sys.argv[1:]])
