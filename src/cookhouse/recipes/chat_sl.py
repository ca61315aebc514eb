"""Supervised fine-tuning of a chat model: no_robots, tulu3, or conversations of your own."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import SupervisedSettings, by_model, published_model, redefault
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:
    from cookhouse.workflows import SupervisedState, Workflow


@chz.chz
class Config(SupervisedSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str | None = redefault(
        SupervisedSettings, "dataset_path", by_model(embedded="bundled", published="no_robots")
    )
    batch_size: int = redefault(SupervisedSettings, "batch_size", by_model(embedded=32, published=256))
    learning_rate: float = redefault(SupervisedSettings, "learning_rate", published_rate(embedded=5e-3, published=1e-4))
    max_length: int = redefault(SupervisedSettings, "max_length", 16384)
    eval_every: int = redefault(SupervisedSettings, "eval_every", 20)
    infrequent_eval_every: int = redefault(SupervisedSettings, "infrequent_eval_every", 100)


def workflow(config: Config) -> "Workflow[SupervisedState]":
    """The stages of a supervised run."""
    from cookhouse.workflows import supervised_workflow

    return supervised_workflow(config)


RECIPE = Recipe(
    name="chat_sl",
    description="Fine-tune a chat model: on no_robots, tulu3, or conversations of your own, measured along the way.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
