"""Supervised fine-tuning on conversations."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import SupervisedSettings, by_model, published_model, redefault
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:
    from cookhouse.workflows import SupervisedState, Workflow


@chz.chz
class SupervisedConfig(SupervisedSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str | None = redefault(
        SupervisedSettings, "dataset_path", by_model(embedded="bundled", published="no_robots")
    )
    batch_size: int = redefault(SupervisedSettings, "batch_size", by_model(embedded=32, published=128))
    learning_rate: float = redefault(SupervisedSettings, "learning_rate", published_rate(embedded=5e-3, published=2e-4))
    eval_every: int = redefault(SupervisedSettings, "eval_every", by_model(embedded=40, published=0))


def workflow(config: SupervisedConfig) -> "Workflow[SupervisedState]":
    """The stages of a supervised run."""
    from cookhouse.workflows import supervised_workflow

    return supervised_workflow(config)


RECIPE = Recipe(
    name="supervised",
    aliases=("sl_basic", "sl_basic_v2", "sft", "finetune"),
    description="Fine-tune on conversations: the bundled ones, or a JSONL file of your own.",
    config_class=SupervisedConfig,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
