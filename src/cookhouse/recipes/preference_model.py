"""A preference model: which of two answers to a prompt is better, said by a language model."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import plain_renderer
from cookhouse.settings import PreferenceModelSettings, by_model, published_model, redefault
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:
    from cookhouse.workflows import PreferenceModelState, Workflow


@chz.chz
class Config(PreferenceModelSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3.5-9B-Base")
    dataset_path: str | None = redefault(
        PreferenceModelSettings, "dataset_path", by_model(embedded="bundled", published="hh")
    )
    renderer_name: str = plain_renderer()
    batch_size: int = redefault(PreferenceModelSettings, "batch_size", by_model(embedded=64, published=256))
    lora_rank: int = redefault(PreferenceModelSettings, "lora_rank", by_model(embedded=32, published=64))
    learning_rate: float = redefault(
        PreferenceModelSettings, "learning_rate", published_rate(embedded=3e-3, published=3e-4)
    )
    max_steps: int | None = redefault(PreferenceModelSettings, "max_steps", by_model(embedded=24, published=None))


def workflow(config: Config) -> "Workflow[PreferenceModelState]":
    """The stages of a run."""
    from cookhouse.workflows import preference_model_workflow

    return preference_model_workflow(config)


RECIPE = Recipe(
    name="preference_model",
    description="Learn which of two answers is better: from the bundled pairs, or a JSONL file of comparisons.",
    config_class=Config,
    workflow=workflow,
    aliases=("reward_model",),
)

if __name__ == "__main__":
    become_command(RECIPE)
