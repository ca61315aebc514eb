"""Reinforcement learning by self-play: a race of numbers against itself, measured against a scripted player."""

from typing import TYPE_CHECKING, Literal

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer, reinforcement_recipe, rl_default, without_format
from cookhouse.settings import ReinforcementSettings, is_embedded, part_of, published_model
from cookhouse.settings.judge import WITH_HELD_OUT

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-4B-Instruct-2507")
    target: int = chz.field(default=31, doc="The number that wins.")
    max_add: int = chz.field(default=3, doc="How far above the last number the next one may be.")
    opponent: Literal["random", "perfect"] = chz.field(
        default="random", doc="Scripted player of the evaluation.", validator=WITH_HELD_OUT
    )
    renderer_name: str = plain_renderer()
    format_coef: float = without_format()
    batch_size: int = rl_default("batch_size", embedded=8, published=32)
    group_size: int = rl_default("group_size", embedded=8, published=8)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=64)
    learning_rate: float = rl_default("learning_rate", embedded=1e-3, published=3e-5)
    max_steps: int | None = rl_default("max_steps", embedded=40, published=None)
    eval_every: int = rl_default("eval_every", embedded=20, published=0)

    @property
    def has_tools(self) -> bool:
        return False


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import SelfPlayConfig

    # The embedded model reads no rules: they would only be more to read.
    return part_of(SelfPlayConfig, config, with_rules=not is_embedded(config))


RECIPE = reinforcement_recipe(
    name="self_play",
    description="Reinforcement learning by playing a game of two against itself.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
