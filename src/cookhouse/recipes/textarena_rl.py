"""Reinforcement learning in any game of the library `textarena`."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.recipes.reinforcement import ReinforcementConfig, ReinforcementRecipe

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    env_id: str = chz.field(default="GuessTheNumber-v0", doc="The game, as textarena names it.")
    num_players: int = chz.field(default=1, doc="Seats at the game; the trained model takes one.")
    opponent_model: str | None = chz.field(default=None, doc="Model in the other seats, if there are any.")
    opponent_renderer: str | None = chz.field(
        default=None, doc="Its chat format; default: the model's own, with thinking off where its family has a way."
    )
    opponent_max_tokens: int | None = chz.field(
        default=None, doc="Tokens of its moves; default: 512, and 2048 more where it thinks."
    )


def _defaults(config: Config) -> Mapping[str, Any]:
    del config
    return {"batch_size": 32, "group_size": 8, "max_tokens": 128, "learning_rate": 3e-5}


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    from cookhouse.envs import TextArenaConfig, TwoModelBuilder

    settings = {
        **config.env_settings,
        "env_id": config.env_id,
        "num_players": config.num_players,
        "opponent_model": config.opponent_model,
        "opponent_renderer": config.opponent_renderer,
        "opponent_max_tokens": config.opponent_max_tokens,
    }
    return TwoModelBuilder(config=TextArenaConfig(**settings), open_sampler=open_sampler)


_RECIPE = ReinforcementRecipe(name="textarena_rl", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
