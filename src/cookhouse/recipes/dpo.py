"""Direct preference optimization, and other losses over pairs of answers of which one is preferred."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import plain_renderer
from cookhouse.settings import PreferenceSettings, by_model, published_model, redefault
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:
    from cookhouse.workflows import PreferenceState, Workflow


@chz.chz
class Config(PreferenceSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.2-1B")
    dataset_path: str | None = redefault(
        PreferenceSettings, "dataset_path", by_model(embedded="bundled", published="hh")
    )
    renderer_name: str = plain_renderer()
    batch_size: int = redefault(PreferenceSettings, "batch_size", by_model(embedded=32, published=256))
    learning_rate: float = redefault(
        PreferenceSettings, "learning_rate", published_rate(embedded=2e-4, published=1e-5, by_reward=True)
    )
    eval_every: int = redefault(PreferenceSettings, "eval_every", by_model(embedded=16, published=0))


def workflow(config: Config) -> "Workflow[PreferenceState]":
    """The stages of a run."""
    from cookhouse.workflows import preference_workflow

    return preference_workflow(config)


RECIPE = Recipe(
    name="dpo",
    aliases=("preference",),
    description="Learn from pairs of answers of which one is preferred: the bundled ones, or a JSONL file of your own.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
