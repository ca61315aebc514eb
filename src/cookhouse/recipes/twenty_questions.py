"""Reinforcement learning by twenty questions: the model asks, another one answers, until the secret is named."""

from typing import TYPE_CHECKING

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer, reinforcement_recipe, rl_default, without_format
from cookhouse.settings import (
    Default,
    NamesWeights,
    ReinforcementSettings,
    at_least,
    by_model,
    computed,
    facts,
    is_embedded,
    part_of,
    published_model,
    read_if,
)

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler


_BY_MODEL = read_if(lambda config: config.answerer_model is not None, "with answerer_model")


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-4B-Instruct-2507")
    answerer_model: str | None = computed(
        Default(
            lambda config: None if is_embedded(config) else config.model_name,
            f"none for {TINY_MODEL}, else the base model",
        ),
        str,
        "Model that answers; none: rules do, and the secret is a number.",
        metadata=facts(weights=NamesWeights(port="completer")),
    )
    answerer_renderer: str | None = chz.field(
        default=None,
        doc="Its chat format; default: that of the run that trained it, else the model's own, with thinking off where "
        "its family has a way.",
        validator=_BY_MODEL,
    )
    answerer_max_tokens: int | None = chz.field(
        default=None,
        doc="Tokens of its answers; default: 64, and 2048 more where it thinks.",
        validator=[at_least(1), _BY_MODEL],
    )
    words_path: str | None = chz.field(
        default=None, doc='JSONL of {"word": ...}, the secrets; default: a list.', validator=_BY_MODEL
    )
    num_candidates: int = chz.field(
        default=4,
        doc="Numbers that the secret is one of, where rules answer.",
        validator=read_if(lambda config: config.answerer_model is None, "where no answerer_model answers"),
    )
    num_turns: int = computed(by_model(embedded=4, published=20), int, "Turns to find the secret in.", at_least(1))
    renderer_name: str = plain_renderer()
    format_coef: float = without_format()
    batch_size: int = rl_default("batch_size", embedded=16, published=64)
    group_size: int = rl_default("group_size", embedded=8, published=8)
    max_tokens: int = rl_default("max_tokens", embedded=8, published=64)
    learning_rate: float = rl_default("learning_rate", embedded=1e-3, published=3e-5)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)

    @property
    def has_tools(self) -> bool:
        return False


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    from cookhouse.envs import TwentyQuestionsConfig, TwoModelBuilder

    return TwoModelBuilder(config=part_of(TwentyQuestionsConfig, config), open_sampler=open_sampler)


RECIPE = reinforcement_recipe(
    name="twenty_questions",
    description="Reinforcement learning by a game of questions that a second model answers.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
