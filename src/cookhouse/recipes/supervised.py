"""Supervised fine-tuning on conversations: config, its defaults, and how they become a workflow."""

import math
import sys
import time
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import chz

from cookhouse.assets import TINY_MODEL, data_file
from cookhouse.catalog import default_renderer
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.schedules import SCHEDULES

if TYPE_CHECKING:
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Connect, Interrupt
    from cookhouse.workflows import DryRunReport, RunResult, SupervisedPlan, SupervisedState, Workflow


@chz.chz
class SupervisedConfig:
    """Settings of a supervised run. None means: chosen by `resolve`, in the way the field says."""

    model_name: str = chz.field(
        default=TINY_MODEL, doc="Base model: cookhouse/tiny, a hub id or a folder that the service knows."
    )
    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of conversations to train on; default: the bundled ones."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out conversations; default: the bundled ones with the bundled data, else none."
    )
    renderer_name: str | None = chz.field(default=None, doc="Chat format; default: the model's own.")
    force_renderer: bool = chz.field(default=False, doc="Take a renderer that does not fit the model.")
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    batch_size: int | None = chz.field(
        default=None, doc="Conversations per step; default: 32 for cookhouse/tiny, else 128."
    )
    learning_rate: float | None = chz.field(
        default=None, doc="Peak learning rate; default: 5e-3 for cookhouse/tiny, else 2e-4."
    )
    lr_schedule: str = chz.field(
        default="linear", doc="constant, linear, cosine, warmup_linear or warmup_cosine, over all steps."
    )
    warmup_steps: int = chz.field(default=0, doc="Steps of warm-up, for the two schedules that have it.")
    num_epochs: int = chz.field(default=1, doc="Passes over the data, reshuffled each time.")
    max_steps: int | None = chz.field(default=None, doc="Stop after this many steps; default: all epochs.")
    max_length: int = chz.field(default=32768, doc="Tokens kept of each example; longer ones lose their end.")
    lora_rank: int = chz.field(default=32, doc="Rank of the LoRA adapter.")
    seed: int = chz.field(default=0, doc="Seed of the data order and of the adapter.")
    save_every: int = chz.field(default=20, doc="Steps between checkpoints; 0: only the last.")
    eval_every: int = chz.field(default=0, doc="Steps between evaluations; 0: only before and after.")
    num_eval: int = chz.field(default=100, doc="Held-out conversations to evaluate on; 0: none.")
    eval_max_tokens: int = chz.field(default=64, doc="Tokens sampled for each answer in an evaluation.")
    num_samples: int = chz.field(default=3, doc="Answers shown before and after.")
    log_path: str | None = chz.field(default=None, doc="Run folder; default: a new one under runs/.")
    load_checkpoint_path: str | None = chz.field(
        default=None, doc="tinker:// path of weights to start from, with a fresh optimizer."
    )
    behavior_if_log_dir_exists: Literal["ask", "delete", "raise", "resume"] = chz.field(
        default="ask", doc="What to do when the run folder exists: ask, delete, raise or resume."
    )
    base_url: str | None = chz.field(
        default=None, doc="Address of the training service; default: TINKER_BASE_URL, else the embedded engine."
    )
    ttl_seconds: int | None = chz.field(
        default=None, doc="Seconds after which the service may delete periodic checkpoints; default: never."
    )


Config = SupervisedConfig

FREE_ON_RESUME = frozenset(
    {
        "base_url",
        "behavior_if_log_dir_exists",
        "eval_every",
        "log_path",
        "num_samples",
        "save_every",
        "ttl_seconds",
    }
)
"""Fields that do not change what is trained, so that a resumed run may set them anew."""

_AT_LEAST = {
    "batch_size": 1,
    "num_epochs": 1,
    "max_steps": 1,
    "lora_rank": 1,
    "eval_max_tokens": 1,
    "warmup_steps": 0,
    "seed": 0,
    "save_every": 0,
    "eval_every": 0,
    "num_eval": 0,
    "num_samples": 0,
    "ttl_seconds": 3600,
}


def resolve(config: SupervisedConfig) -> SupervisedConfig:
    """The config with every default decided; one that is resolved already comes back as it is.

    Raises:
        InputError: a value is out of range, or does not go with the others.
    """
    is_tiny = config.model_name == TINY_MODEL
    decided: SupervisedConfig = chz.replace(
        config,
        batch_size=_default(config.batch_size, 32 if is_tiny else 128),
        learning_rate=_default(config.learning_rate, 5e-3 if is_tiny else 2e-4),
        renderer_name=config.renderer_name or default_renderer(config.model_name),
        log_path=config.log_path or _new_log_path(),
    )
    _check(decided)
    return decided


def _default(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _new_log_path() -> str:
    first = f"runs/supervised-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    candidates = chain([first], (f"{first}-{number}" for number in count(2)))
    return next(path for path in candidates if not Path(path).exists())


def _check(config: SupervisedConfig) -> None:
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")
    rate = config.learning_rate
    if rate is None or not (math.isfinite(rate) and rate > 0):
        raise InputError(f"learning_rate is {rate}; it must be a positive number, such as 2e-4")
    if config.lr_schedule not in SCHEDULES:
        raise UnknownNameError("lr_schedule", config.lr_schedule, SCHEDULES)
    start = config.load_checkpoint_path
    if start is not None and not start.startswith("tinker://"):
        raise InputError(f"load_checkpoint_path is {start!r}; the path of a checkpoint starts with tinker://")


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
    from cookhouse.training import Cadence
    from cookhouse.workflows import FolderSpec, SupervisedPlan

    assert config.log_path is not None
    assert config.renderer_name is not None
    assert config.batch_size is not None
    assert config.learning_rate is not None
    return SupervisedPlan(
        folder=FolderSpec(
            path=Path(config.log_path),
            recipe="supervised",
            config=chz.asdict(config),
            seed=config.seed,
            behavior=config.behavior_if_log_dir_exists,
            free_fields=FREE_ON_RESUME,
            ask=ask,
        ),
        model_name=config.model_name,
        renderer_name=config.renderer_name,
        force_renderer=config.force_renderer,
        train_path=_train_path(config),
        test_path=_test_path(config),
        train_on_what=config.train_on_what,
        max_length=config.max_length,
        batch_size=config.batch_size,
        num_epochs=config.num_epochs,
        max_steps=config.max_steps,
        learning_rate=config.learning_rate,
        lr_schedule=config.lr_schedule,
        warmup_steps=config.warmup_steps,
        lora_rank=config.lora_rank,
        seed=config.seed,
        load_checkpoint_path=config.load_checkpoint_path,
        cadence=Cadence(save_every=config.save_every, eval_every=config.eval_every),
        ttl_seconds=config.ttl_seconds,
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
