"""On-policy distillation: the student answers, and a teacher says of each token how likely it finds it."""

from functools import partial
from typing import TYPE_CHECKING

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.naming import names_in
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import (
    NamedEnvironmentSettings,
    named_environments,
    plain_renderer,
    problem_files,
    rl_default,
)
from cookhouse.settings import (
    Default,
    OnPolicyDistillationSettings,
    by_model,
    computed,
    facts,
    is_embedded,
    published_model,
    redefault,
)

if TYPE_CHECKING:
    from cookhouse.workflows import OnPolicyState, Workflow

_BASE = "-Base"


def _teacher(config: "Config") -> str | None:
    """The embedded adapter; of a base model, the one that was trained further."""
    name = config.model_name
    if is_embedded(config):
        return "cookhouse/tiny-arithmetic"
    return name.removesuffix(_BASE) if name.endswith(_BASE) else None


@chz.chz
class Config(NamedEnvironmentSettings, OnPolicyDistillationSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-8B-Base")
    teacher_model: str | None = redefault(
        OnPolicyDistillationSettings,
        "teacher_model",
        Default(_teacher, f"cookhouse/tiny-arithmetic for {TINY_MODEL}; of a base model, the one without -Base"),
    )
    env: str = computed(
        by_model(embedded="arithmetic", published="deepmath"),
        str,
        "Environment that gives the prompts. By name, module:NAME or file.py:NAME; several separated by commas.",
        metadata=facts(is_list=True),
    )
    renderer_name: str = plain_renderer()
    lora_rank: int = redefault(OnPolicyDistillationSettings, "lora_rank", by_model(embedded=32, published=128))
    batch_size: int = rl_default("batch_size", embedded=32, published=1024)
    group_size: int = rl_default("group_size", embedded=4, published=4)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=4096)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=1e-4)
    lr_schedule: str = redefault(
        OnPolicyDistillationSettings, "lr_schedule", by_model(embedded="linear", published="constant")
    )
    max_steps: int | None = rl_default("max_steps", embedded=40, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)


def workflow(config: Config) -> "Workflow[OnPolicyState]":
    """The stages of a run."""
    from cookhouse.workflows import on_policy_workflow

    return on_policy_workflow(
        config,
        partial(named_environments, config),
        environment_names=names_in(config.env),
        data_files=problem_files(config),
    )


RECIPE = Recipe(
    name="on_policy_distillation",
    description="Learn from a teacher's logprobs of what the student itself answers.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
