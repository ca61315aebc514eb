"""Reinforcement learning by a preference model: answers to one prompt play a tournament."""

from typing import TYPE_CHECKING

import chz

from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import plain_renderer, rl_default
from cookhouse.settings import (
    Default,
    ReinforcementSettings,
    TournamentSettings,
    by_model,
    part_of,
    published_model,
    redefault,
)

if TYPE_CHECKING:
    from cookhouse.workflows import ReinforcementState, Workflow


@chz.chz
class Config(ReinforcementSettings, TournamentSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3.5-9B-Base")
    dataset_path: str | None = redefault(
        TournamentSettings, "dataset_path", by_model(embedded="bundled", published="hh")
    )
    rule: str | None = redefault(
        TournamentSettings,
        "rule",
        Default(
            lambda config: "polite" if config.dataset_path == "bundled" else None,
            "polite for the bundled data, else none",
        ),
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=16, published=256)
    group_size: int = rl_default("group_size", embedded=8, published=4)
    max_tokens: int = rl_default("max_tokens", embedded=32, published=1024)
    lora_rank: int = rl_default("lora_rank", embedded=32, published=64)
    learning_rate: float = rl_default("learning_rate", embedded=1e-3, published=1e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=5, published=20)
    format_coef: float = rl_default("format_coef", embedded=1.0, published=1.0)
    compute_kl: bool = rl_default("compute_kl", embedded=True, published=True)

    @property
    def has_several_turns(self) -> bool:
        return False


def workflow(config: Config) -> "Workflow[ReinforcementState]":
    """The stages of a run."""
    from cookhouse.data import data_source
    from cookhouse.envs import TournamentConfig, TwoModelBuilder
    from cookhouse.workflows import check_preference_model, reinforcement_workflow

    files = {"train": config.dataset_path, "test": config.test_path}
    flow = reinforcement_workflow(
        config,
        lambda open_sampler: TwoModelBuilder(config=part_of(TournamentConfig, config), open_sampler=open_sampler),
        data_files={name: data_source(path) for name, path in files.items() if path not in (None, "bundled")},
    )
    return flow.inserted(check_preference_model, before="build_env_group")


RECIPE = Recipe(
    name="preference_rl",
    description="Reinforcement learning by a preference model, which compares the answers to a prompt with each other.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
