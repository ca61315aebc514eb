"""Reinforcement learning on mathematics: arithmetic, GSM8K, MATH, DeepMath or Polaris."""

from typing import TYPE_CHECKING, Literal

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer, reinforcement_recipe, rl_default
from cookhouse.settings import (
    GradingSettings,
    ReinforcementSettings,
    by_model,
    computed,
    facts,
    narrowed,
    part_of,
    published_model,
    read_if,
)

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler

_Env = Literal["arithmetic", "gsm8k", "math", "deepmath", "polaris"]


@chz.chz
class Config(ReinforcementSettings, GradingSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B-Instruct")
    env: _Env = computed(by_model(embedded="arithmetic", published="gsm8k"), _Env, "Set of problems, by name.")
    dataset_path: str | None = chz.field(
        default=None,
        doc="JSONL of training problems; default: bundled, or from the hub.",
        metadata=facts(aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: bundled, or from the hub."
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=48, published=100)
    group_size: int = rl_default("group_size", embedded=4, published=4)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=512)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=1e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)

    grader: str = narrowed(
        GradingSettings,
        "grader",
        read_if(lambda config: config.env != "arithmetic", "with env=gsm8k, math, deepmath or polaris"),
    )

    @property
    def has_several_turns(self) -> bool:
        return False


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import ArithmeticConfig, MathConfig

    if config.env == "arithmetic":
        return part_of(ArithmeticConfig, config)
    return part_of(MathConfig, config, dataset=config.env)


RECIPE = reinforcement_recipe(
    name="math_rl",
    description="Reinforcement learning on mathematics: arithmetic, GSM8K, MATH, DeepMath or Polaris.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
