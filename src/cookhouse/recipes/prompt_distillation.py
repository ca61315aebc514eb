"""Prompt distillation: a teacher answers with a prompt, and the student learns to answer so without it."""

from typing import TYPE_CHECKING

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import off_policy_default, plain_renderer
from cookhouse.settings import (
    Default,
    OffPolicyDistillationSettings,
    is_embedded,
    published_model,
    redefault,
)

if TYPE_CHECKING:
    from cookhouse.workflows import OffPolicyState, Workflow

_START = "cookhouse/tiny-chat"
_PROMPT = "You are a polite assistant."


def _for_embedded(value: str) -> Default:
    """The embedded model follows no prompt before it has learned to."""
    return Default(lambda config: value if is_embedded(config) else None, f"{value!r} for {TINY_MODEL}, else none")


@chz.chz
class Config(OffPolicyDistillationSettings):
    """Settings of the recipe. The teacher is what the run begins with, but for its prompt."""

    model_name: str = published_model("Qwen/Qwen3.6-35B-A3B")
    load_checkpoint_path: str | None = redefault(
        OffPolicyDistillationSettings, "load_checkpoint_path", _for_embedded(_START)
    )
    teacher_prompt: str | None = redefault(OffPolicyDistillationSettings, "teacher_prompt", _for_embedded(_PROMPT))
    renderer_name: str = plain_renderer()
    batch_size: int = off_policy_default("batch_size", embedded=32, published=128)
    num_epochs: int = off_policy_default("num_epochs", embedded=1, published=4)
    max_tokens: int = off_policy_default("max_tokens", embedded=48, published=1000)
    temperature: float = redefault(OffPolicyDistillationSettings, "temperature", 0.15)
    learning_rate: float = off_policy_default("learning_rate", embedded=2e-3, published=1e-4)
    max_steps: int | None = off_policy_default("max_steps", embedded=60, published=None)


def workflow(config: Config) -> "Workflow[OffPolicyState]":
    """The stages of a run."""
    from cookhouse.errors import InputError
    from cookhouse.workflows import off_policy_workflow

    if config.teacher_prompt is None:
        raise InputError("teacher_prompt is not set; give what the student is to do without, as a text or @FILE")
    return off_policy_workflow(config, bundled="conversations")


RECIPE = Recipe(
    name="prompt_distillation",
    description="Learn to answer without a prompt as a teacher does with it.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
