"""Reinforcement learning on programs, rewarded by running tests: one-line functions, or DeepCoder."""

from typing import TYPE_CHECKING, Any, Literal

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer, reinforcement_recipe, rl_default
from cookhouse.settings import (
    ReinforcementSettings,
    above,
    by_model,
    computed,
    facts,
    is_embedded,
    part_of,
    published_model,
    redefault,
    sets_clip,
)
from cookhouse.settings.published import ByModel

if TYPE_CHECKING:
    from cookhouse.rl import RLDatasetBuilder
    from cookhouse.workflows import OpenSampler

_Env = Literal["python_functions", "deepcoder"]


_PUBLISHED_LOSS = "ppo"


def _of_published_loss(name: str, value: Any, otherwise: Any) -> Any:
    """Default published with the loss of the recipe, for models other than the embedded one."""
    default = ByModel(
        lambda config: value if config.loss_fn == _PUBLISHED_LOSS and not is_embedded(config) else otherwise,
        f"{value} with {_PUBLISHED_LOSS} for other models than {TINY_MODEL}"
        + ("" if otherwise is None else f", else {otherwise}"),
    )
    return redefault(ReinforcementSettings, name, default)


def _loss_fn(config: Any) -> str:
    return "importance_sampling" if is_embedded(config) and not sets_clip(config) else _PUBLISHED_LOSS


_LOSS = ByModel(_loss_fn, f"importance_sampling for {TINY_MODEL} where no clip is set, else {_PUBLISHED_LOSS}")


@chz.chz
class Config(ReinforcementSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B-Instruct")
    env: _Env = computed(
        by_model(embedded="python_functions", published="deepcoder"), _Env, "Set of problems, by name."
    )
    dataset_path: str | None = chz.field(
        default=None,
        doc="JSONL of training problems; default: bundled, or from the hub.",
        metadata=facts(aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out problems; default: bundled, or HumanEval from the hub."
    )
    code_reward: Literal["all", "fraction"] = chz.field(
        default="all", doc="all: every test must pass; fraction: the share that passes."
    )
    test_seconds: float = chz.field(
        default=6.0, doc="Time that each test of a program may take.", validator=above(0, "6")
    )
    renderer_name: str = plain_renderer()
    batch_size: int = rl_default("batch_size", embedded=16, published=100)
    group_size: int = rl_default("group_size", embedded=16, published=4)
    max_tokens: int = rl_default("max_tokens", embedded=32, published=1024)
    learning_rate: float = rl_default("learning_rate", embedded=2e-3, published=1e-5)
    loss_fn: str = redefault(ReinforcementSettings, "loss_fn", _LOSS)
    clip_low: float | None = _of_published_loss("clip_low", 0.8, None)
    clip_high: float | None = _of_published_loss("clip_high", 1.2, None)
    ppo_epochs: int = _of_published_loss("ppo_epochs", 4, 1)
    advantage: str = rl_default("advantage", embedded="group_centered", published="gae")
    gamma: float = rl_default("gamma", embedded=0.99, published=0.99)
    gae_lambda: float = rl_default("gae_lambda", embedded=0.95, published=0.95)
    max_steps: int | None = rl_default("max_steps", embedded=30, published=None)
    eval_every: int = rl_default("eval_every", embedded=10, published=0)

    @property
    def has_several_turns(self) -> bool:
        return False


def _environments(config: Config, open_sampler: "OpenSampler") -> "RLDatasetBuilder":
    del open_sampler
    from cookhouse.envs import DeepCoderConfig, PythonFunctionsConfig

    if config.env == "python_functions":
        return part_of(PythonFunctionsConfig, config)
    return part_of(DeepCoderConfig, config)


RECIPE = reinforcement_recipe(
    name="code_rl",
    description="Reinforcement learning on programs, rewarded by running their tests in a sandbox.",
    config_class=Config,
    environments=_environments,
)

if __name__ == "__main__":
    become_command(RECIPE)
