"""Reinforcement learning on word problems: arithmetic for the embedded model, GSM8K for all others."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer, reinforcement_recipe, rl_default
from cookhouse.settings import ReinforcementSettings, facts, is_embedded, part_of, published_model

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str | None = chz.field(
        default=None,
        doc="JSONL of training problems. Default: bundled arithmetic for cookhouse/tiny, else GSM8K.",
        metadata=facts(aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: those that belong to the training data."
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=16, published=128)
    group_size: int = rl_default("group_size", embedded=16, published=16)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=256)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=4e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)

    @property
    def has_several_turns(self) -> bool:
        return False


def environments(config: Config, open_sampler: "OpenSampler | None" = None) -> "RLDatasetBuilder":
    """The problems of a config; no second model is asked."""
    del open_sampler
    from cookhouse.envs import ArithmeticConfig, MathConfig

    if is_embedded(config):
        return part_of(ArithmeticConfig, config)
    return part_of(MathConfig, config)  # of GSM8K, its default


RECIPE = reinforcement_recipe(
    name="rl_basic",
    description="Reinforcement learning on word problems: bundled arithmetic, or GSM8K.",
    config_class=Config,
    environments=environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
