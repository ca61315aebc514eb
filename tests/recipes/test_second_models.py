"""What a recipe says of a second model reaches the environments."""

from typing import Any

import pytest

from cookhouse.envs import TwoModelBuilder
from cookhouse.recipes import find_recipe
from cookhouse.recipes.textarena_rl import _environments as games
from cookhouse.recipes.twenty_questions import _environments as questions


async def nobody(_: str) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("recipe", "environments", "who"),
    [("twenty_questions", questions, "answerer"), ("textarena_rl", games, "opponent")],
)
def test_renderer_and_tokens_of_a_second_model_arrive(recipe: str, environments: Any, who: str) -> None:
    settings = {f"{who}_model": "Qwen/Qwen3-8B", f"{who}_renderer": "qwen3", f"{who}_max_tokens": 77}
    seats = {"num_players": 2} if recipe == "textarena_rl" else {}
    config = find_recipe(recipe).config_class(**settings, **seats)
    builder = environments(config, nobody)
    assert isinstance(builder, TwoModelBuilder)
    assert {name: getattr(builder.config, name) for name in settings} == settings
