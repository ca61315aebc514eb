"""Reinforcement learning in any environment of the library `verifiers`."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import reinforcement_recipe, rl_default, without_format
from cookhouse.settings import ReinforcementSettings, part_of, published_model

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-4B-Instruct-2507")
    env_id: str = chz.field(default="gsm8k", doc="Name of an installed environment.")
    env_args: str = chz.field(default="{}", doc="What the environment is loaded with, a JSON object.")
    format_coef: float = without_format()
    batch_size: int = rl_default("batch_size", embedded=32, published=32)
    group_size: int = rl_default("group_size", embedded=8, published=8)
    eval_every: int = rl_default("eval_every", embedded=20, published=0)
    max_tokens: int = rl_default("max_tokens", embedded=512, published=512)
    learning_rate: float = rl_default("learning_rate", embedded=4e-5, published=1e-5)


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import VerifiersConfig

    return part_of(VerifiersConfig, config)


RECIPE = reinforcement_recipe(
    name="verifiers_rl",
    description="Reinforcement learning in any environment of the library verifiers.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
