"""Reinforcement learning in any environment: a built-in one, your own, or several mixed by weight."""

from typing import Literal

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import (
    NamedEnvironmentSettings,
    failed_groups,
    least_members,
    named_environments,
    plain_renderer,
    reinforcement_recipe,
    rl_default,
)
from cookhouse.settings import ReinforcementSettings, by_model, computed, facts, published_model


@chz.chz
class Config(NamedEnvironmentSettings, ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B-Instruct")
    env: str = computed(
        by_model(embedded="arithmetic", published="gsm8k"),
        str,
        "Environment to train in. By name, module:NAME or file.py:NAME; several separated by commas.",
        metadata=facts(is_list=True),
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=16, published=32)
    group_size: int = rl_default("group_size", embedded=16, published=8)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=256)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=4e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)
    min_group_members: int | None = least_members()
    on_failed_group: Literal["stop", "skip"] = failed_groups()


RECIPE = reinforcement_recipe(
    name="rl",
    description="Reinforcement learning in any environment: a built-in one, your own, or several mixed.",
    config_class=Config,
    environments=named_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
