"""Reinforcement learning from human feedback: demonstrations, then a preference model, then reward by it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.assets import data_file
from cookhouse.naming import names_in
from cookhouse.recipes.pipeline import pipeline_recipe
from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer
from cookhouse.settings import (
    AdamSettings,
    AdapterSettings,
    Alias,
    RunSettings,
    at_least,
    by_model,
    computed,
    facts,
    published_model,
    rate,
    read_if,
    redefault,
)
from cookhouse.settings.checks import one_of
from cookhouse.settings.defaults import given
from cookhouse.settings.optimizer import AUTO
from cookhouse.settings.published import default_origin
from cookhouse.settings.rates import published_rate
from cookhouse.settings.training import BestSettings

if TYPE_CHECKING:
    from cookhouse.workflows import ChildRun

_OF_NEW_ADAPTER = ("train_mlp", "train_attn", "train_unembed")
_HANDED_DOWN = (
    *("model_name", "renderer_name", "force_renderer", "seed", "lora_rank"),
    *_OF_NEW_ADAPTER,
    "user_metadata",
    *("lr_schedule", "warmup_steps", "weight_decay", "grad_clip_norm"),
    *("base_url", "registry", "service_patience_seconds", "sinks", "metrics", "wandb_project"),
    *("save_every", "eval_every", "num_eval"),
    *("keep_best", "early_stopping_patience", "early_stopping_threshold"),
    "headline",
)
"""Settings that every run of the pipeline has."""


def _count(embedded: int | None, published: int | None, doc: str) -> Any:
    return computed(by_model(embedded=embedded, published=published), int, doc, at_least(1))


@chz.chz
class Config(RunSettings, AdapterSettings, AdamSettings, BestSettings):
    """Settings of the recipe. `sft`, `preference` and `rl` begin the names of those that one of its runs has."""

    model_name: str = published_model("Qwen/Qwen3.5-9B-Base")
    renderer_name: str = plain_renderer()
    lora_rank: int = redefault(AdapterSettings, "lora_rank", by_model(embedded=32, published=64))
    batch_size: int | None = chz.field(
        default=None,
        doc="Conversations, examples and groups per step; default: each recipe's own.",
        validator=at_least(1),
        metadata=facts(aliases=(Alias(name="groups_per_batch", doc="tinker-cookbook"),)),
    )
    max_steps: int | None = chz.field(
        default=None, doc="Steps of each run, at most; default: its own number.", validator=at_least(1)
    )
    save_every: int = computed(
        by_model(embedded=20, published=100),
        int,
        "Steps between checkpoints; 0: only the last.",
        at_least(0),
        metadata=facts(free_on_resume=True),
    )
    eval_every: int = computed(
        by_model(embedded=4, published=20),
        int,
        "Steps between evaluations; 0: only before and after.",
        at_least(0),
        metadata=facts(free_on_resume=True),
    )
    keep_best: str | None = chz.field(
        default=None,
        doc="auto: keep and hand on each run's best weights. By the metric that tells most; default: the last weights.",
        validator=[
            one_of("keep_best of several runs", ["auto"]),
            read_if(lambda config: config.eval_every, "with eval_every above 0"),
        ],
    )
    num_eval: int = computed(
        by_model(embedded=50, published=256), int, "Held-out problems to evaluate on; 0: none.", at_least(0)
    )
    sft_dataset_path: str | None = computed(
        by_model(embedded="bundled", published="no_robots"),
        str,
        "Demonstrations, as dataset_path of supervised.",
        metadata=facts(is_list=True),
    )
    sft_learning_rate: float = rate(published_rate(embedded=2e-3, published=2e-4), "Of the demonstrations")
    sft_max_steps: int | None = _count(12, None, "Steps on demonstrations; default: all of an epoch.")
    preference_dataset_path: str | None = computed(
        by_model(embedded="bundled", published="hh"),
        str,
        "Preferences, of which the preference model learns and whose prompts are answered.",
    )
    preference_learning_rate: float = rate(
        published_rate(embedded=3e-3, published=3e-4),
        "Of the preference model",
        metadata=facts(aliases=(Alias(name="rm_learning_rate", doc="tinker-cookbook: of the reward model"),)),
    )
    preference_max_steps: int | None = _count(24, None, "Steps of the preference model; default: all of an epoch.")
    rl_learning_rate: float = rate(
        published_rate(embedded=1e-3, published=1e-5, by_reward=True), "Of reinforcement learning"
    )
    rl_group_size: int = computed(by_model(embedded=8, published=4), int, "Answers to each prompt.", at_least(2))
    rl_max_tokens: int = _count(32, 1024, "Tokens of an answer.")
    rl_max_steps: int | None = _count(16, None, "Steps by reward; default: all of an epoch.")
    kl_coef: float = chz.field(
        default=0.0,
        doc="Penalty for leaving what the demonstrations made; 0: none.",
        validator=at_least(0),
        metadata=facts(aliases=(Alias(name="kl_penalty_coef", doc="tinker-cookbook"),)),
    )


def _runs(config: Config) -> "Sequence[ChildRun]":
    from cookhouse.workflows import ChildRun

    def sft(folders: Mapping[str, Path]) -> Mapping[str, Any]:
        del folders
        return {**_shared(config, "sft"), **_demonstrations(config)}

    def preference_model(folders: Mapping[str, Path]) -> Mapping[str, Any]:
        del folders
        return {**_shared(config, "preference"), "dataset_path": config.preference_dataset_path}

    def rl(folders: Mapping[str, Path]) -> Mapping[str, Any]:
        return {
            **{name: value for name, value in _shared(config, "rl").items() if name not in _OF_NEW_ADAPTER},
            "dataset_path": config.preference_dataset_path,
            "group_size": config.rl_group_size,
            "max_tokens": config.rl_max_tokens,
            "kl_coef": config.kl_coef,
            "load_checkpoint_path": str(folders["sft"]),
            "preference_model": str(folders["preference_model"]),
        }

    return [
        ChildRun(name="sft", recipe="supervised", settings=sft),
        ChildRun(name="preference_model", recipe="preference_model", settings=preference_model),
        ChildRun(name="rl", recipe="preference_rl", settings=rl),
    ]


def _shared(config: Config, run: str) -> dict[str, Any]:
    """Settings that every run is given, with rate and steps of one of them."""
    settings = {name: getattr(config, name) for name in _HANDED_DOWN}
    name = f"{run}_learning_rate"
    # The run has the same rule, and says what it takes.
    is_auto = given(config, name) == AUTO or (given(config, name) is None and default_origin(config, name) == "rule")
    settings["learning_rate"] = AUTO if is_auto else getattr(config, name)
    steps = getattr(config, f"{run}_max_steps")
    if config.max_steps is not None:
        steps = config.max_steps if steps is None else min(steps, config.max_steps)
    optional = {
        "batch_size": config.batch_size,
        "max_steps": steps,
        "wandb_name": None if config.wandb_name is None else f"{config.wandb_name}-{run}",
    }
    return settings | {name: value for name, value in optional.items() if value is not None}


def _demonstrations(config: Config) -> dict[str, Any]:
    names = names_in(config.sft_dataset_path or "")
    if "bundled" not in names:
        return {"dataset_path": config.sft_dataset_path}
    train, test = (str(data_file(f"preferences/demonstrations_{part}.jsonl")) for part in ("train", "test"))
    return {"dataset_path": ",".join(train if name == "bundled" else name for name in names), "test_path": test}


RECIPE = pipeline_recipe(
    name="rlhf",
    aliases=("rlhf_pipeline",),
    description="From demonstrations and preferences to a policy: supervised, a preference model, reward by it.",
    config_class=Config,
    runs=_runs,
)

if __name__ == "__main__":
    become_command(RECIPE)
