"""Reinforcement learning by twenty questions: the model asks, another one answers, until the secret is named."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.reinforcement import ReinforcementConfig, ReinforcementRecipe

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


@chz.chz
class Config(ReinforcementConfig):
    """Settings of the recipe. None means: chosen by `resolve`, in the way the field says."""

    answerer_model: str | None = chz.field(
        default=None, doc="Model that answers; default: rules for cookhouse/tiny, which guesses numbers, else the base."
    )
    answerer_renderer: str | None = chz.field(
        default=None, doc="Its chat format; default: the model's own, with thinking off where its family has a way."
    )
    answerer_max_tokens: int | None = chz.field(
        default=None, doc="Tokens of its answers; default: 64, and 2048 more where it thinks."
    )
    words_path: str | None = chz.field(default=None, doc='JSONL of {"word": ...}, the secrets; default: a list.')
    num_candidates: int = chz.field(default=4, doc="Numbers that the secret is one of, where rules answer.")
    num_turns: int | None = chz.field(default=None, doc="Turns to find the secret in; default: the recipe's.")


def _defaults(config: Config) -> Mapping[str, Any]:
    if config.model_name != TINY_MODEL:
        return {
            "answerer_model": config.model_name,
            "batch_size": 64,
            "group_size": 8,
            "max_tokens": 64,
            "learning_rate": 3e-5,
            "num_turns": 20,
        }
    return {
        "renderer_name": "human_ai",
        "batch_size": 16,
        "group_size": 8,
        "max_tokens": 8,
        "learning_rate": 1e-3,
        "max_steps": 30,
        "num_turns": 4,
    }


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    from cookhouse.envs import TwentyQuestionsConfig, TwoModelBuilder

    settings = {
        **config.env_settings,
        "answerer_model": config.answerer_model,
        "answerer_renderer": config.answerer_renderer,
        "answerer_max_tokens": config.answerer_max_tokens,
        "words_path": config.words_path,
        "num_candidates": config.num_candidates,
        "max_turns": config.num_turns,
    }
    return TwoModelBuilder(config=TwentyQuestionsConfig(**settings), open_sampler=open_sampler)


_RECIPE = ReinforcementRecipe(name="twenty_questions", defaults=_defaults, environments=_environments)
resolve, workflow, execute, dry_run = _RECIPE.resolve, _RECIPE.workflow, _RECIPE.execute, _RECIPE.dry_run

if __name__ == "__main__":
    # By name: the command line stands above the recipes, which import nothing of it.
    import_module("cookhouse.cli").main(["run", _RECIPE.name, *sys.argv[1:]])
