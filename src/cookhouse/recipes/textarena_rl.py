"""Reinforcement learning in any game of the library `textarena`."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import reinforcement_recipe, rl_default, without_format
from cookhouse.settings import NamesWeights, ReinforcementSettings, at_least, facts, part_of, published_model, read_if

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


_WITH_SEATS = read_if(lambda config: config.num_players > 1, "with num_players above 1")


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-4B-Instruct-2507")
    env_id: str = chz.field(default="GuessTheNumber-v0", doc="The game, as textarena names it.")
    num_players: int = chz.field(default=1, doc="Seats at the game; the trained model takes one.")
    opponent_model: str | None = chz.field(
        default=None,
        doc="Model in the other seats, if there are any.",
        validator=_WITH_SEATS,
        metadata=facts(weights=NamesWeights(port="completer")),
    )
    opponent_renderer: str | None = chz.field(
        default=None,
        doc="Its chat format; default: that of the run that trained it, else the model's own, with thinking off where "
        "its family has a way.",
        validator=_WITH_SEATS,
    )
    opponent_max_tokens: int | None = chz.field(
        default=None,
        doc="Tokens of its moves; default: 512, and 2048 more where it thinks.",
        validator=[at_least(1), _WITH_SEATS],
    )
    format_coef: float = without_format()
    batch_size: int = rl_default("batch_size", embedded=32, published=32)
    group_size: int = rl_default("group_size", embedded=8, published=8)
    eval_every: int = rl_default("eval_every", embedded=20, published=0)
    max_tokens: int = rl_default("max_tokens", embedded=128, published=128)
    learning_rate: float = rl_default("learning_rate", embedded=3e-05, published=3e-05)

    @property
    def has_tools(self) -> bool:
        return False


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    from cookhouse.envs import TextArenaConfig, TwoModelBuilder

    return TwoModelBuilder(config=part_of(TextArenaConfig, config), open_sampler=open_sampler)


RECIPE = reinforcement_recipe(
    name="textarena_rl",
    description="Reinforcement learning in any game of the library textarena.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
