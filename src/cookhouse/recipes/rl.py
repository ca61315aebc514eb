"""Reinforcement learning in any environment: a built-in one, your own, or several mixed by weight."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import NamedEnvironmentSettings, plain_renderer, reinforcement_recipe, rl_default
from cookhouse.settings import ReinforcementSettings, by_model, computed, published_model

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(NamedEnvironmentSettings, ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B-Instruct")
    env: str = computed(
        by_model(embedded="arithmetic", published="gsm8k"),
        str,
        "Environment, by name, module:NAME or file.py:NAME; several separated by commas.",
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=16, published=32)
    group_size: int = rl_default("group_size", embedded=16, published=8)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=256)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=4e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    from cookhouse.envs import parse_environments
    from cookhouse.grading import GRADERS

    GRADERS.find(config.grader)  # a name that is wrong is wrong also where no environment asks for it
    return parse_environments(config.env, config.env_weights, config.env_args, config, open_sampler)


RECIPE = reinforcement_recipe(
    name="rl",
    description="Reinforcement learning in any environment: a built-in one, your own, or several mixed.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
