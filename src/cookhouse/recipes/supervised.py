"""Supervised fine-tuning on conversations: config, its defaults, and how they become a workflow."""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import chz

from cookhouse.assets import TINY_MODEL, data_file
from cookhouse.recipes.training_config import TrainingConfig, check_at_least, common_plan, decide

if TYPE_CHECKING:
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Connect, Interrupt
    from cookhouse.workflows import DryRunReport, RunResult, SupervisedPlan, SupervisedState, Workflow


@chz.chz
class SupervisedConfig(TrainingConfig):
    """Settings of a supervised run. None means: chosen by `resolve`, in the way the field says."""

    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of conversations to train on; default: the bundled ones."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out conversations; default: the bundled ones with the bundled data, else none."
    )
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    batch_size: int | None = chz.field(
        default=None, doc="Conversations per step; default: 32 for cookhouse/tiny, else 128."
    )
    learning_rate: float | None = chz.field(
        default=None, doc="Peak learning rate; default: 5e-3 for cookhouse/tiny, else 2e-4."
    )
    max_length: int = chz.field(default=32768, doc="Tokens kept of each example; longer ones lose their end.")
    eval_max_tokens: int = chz.field(default=64, doc="Tokens sampled for each answer in an evaluation.")


Config = SupervisedConfig


def resolve(config: SupervisedConfig) -> SupervisedConfig:
    """The config with every default decided; one that is resolved already comes back as it is.

    Raises:
        InputError: a value is out of range, or does not go with the others.
    """
    is_tiny = config.model_name == TINY_MODEL
    decided = decide(config, "supervised", batch_size=32 if is_tiny else 128, learning_rate=5e-3 if is_tiny else 2e-4)
    check_at_least(decided, {"batch_size": 1, "eval_max_tokens": 1})
    return decided


def workflow() -> "Workflow[SupervisedState]":
    """The stages of a supervised run."""
    from cookhouse.workflows import SUPERVISED

    return SUPERVISED


async def execute(
    config: SupervisedConfig,
    *,
    connect: "Connect",
    telemetry: "Telemetry",
    interrupt: "Interrupt",
    ask: Callable[[str], str] | None,
) -> "RunResult":
    """Run a resolved config. Raises as `cookhouse.recipes.run`."""
    from cookhouse.workflows import SUPERVISED, SupervisedState, choose_folder, run_workflow, supervised_result

    start = time.monotonic()
    plan = _plan(config, ask)
    state = SupervisedState(
        telemetry=telemetry,
        interrupt=interrupt,
        service=connect,
        plan=plan,
        choice=choose_folder(plan.folder),
    )
    await run_workflow(SUPERVISED, state)
    return supervised_result(state, num_samples=config.num_samples, seconds=time.monotonic() - start)


def dry_run(config: SupervisedConfig) -> "DryRunReport":
    """Read, tokenize and count, by the stages that a run begins with."""
    from cookhouse.workflows import dry_run_supervised

    # Whether a folder that exists may be used is checked; what would be asked about it is left to the run.
    return dry_run_supervised(_plan(resolve(config), lambda _: "delete"))


def _plan(config: SupervisedConfig, ask: Callable[[str], str] | None) -> "SupervisedPlan":
    from cookhouse.workflows import SupervisedPlan

    assert config.batch_size is not None
    train_path, test_path = _train_path(config), _test_path(config)
    return SupervisedPlan(
        **common_plan(config, "supervised", ask, {"train": train_path, "test": test_path}),
        train_path=train_path,
        test_path=test_path,
        train_on_what=config.train_on_what,
        max_length=config.max_length,
        batch_size=config.batch_size,
        num_eval=config.num_eval,
        eval_max_tokens=config.eval_max_tokens,
    )


def _train_path(config: SupervisedConfig) -> Path:
    return data_file("conversations/train.jsonl") if config.dataset_path is None else Path(config.dataset_path)


def _test_path(config: SupervisedConfig) -> Path | None:
    if config.test_path is not None:
        return Path(config.test_path)
    return data_file("conversations/test.jsonl") if config.dataset_path is None else None


if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", "supervised", *sys.argv[1:]])
