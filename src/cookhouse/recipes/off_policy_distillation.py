"""Off-policy distillation: a teacher answers prompts, and the student learns its answers."""

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

_TEACHER = "cookhouse/tiny-arithmetic"
_BASE = "-Base"


def _teacher(config: "Config") -> str | None:
    """The embedded adapter; of a base model, the one that was trained further."""
    if is_embedded(config):
        return _TEACHER
    return config.model_name.removesuffix(_BASE) if config.model_name.endswith(_BASE) else None


@chz.chz
class Config(OffPolicyDistillationSettings):
    """Settings of the recipe."""

    model_name: str = published_model("Qwen/Qwen3-8B-Base")
    teacher_model: str | None = redefault(
        OffPolicyDistillationSettings,
        "teacher_model",
        Default(_teacher, f"{_TEACHER} for {TINY_MODEL}; of a base model, the one without -Base"),
    )
    dataset_path: str | None = off_policy_default("dataset_path", embedded="bundled", published="openthoughts3")
    renderer_name: str = plain_renderer()
    lora_rank: int = off_policy_default("lora_rank", embedded=32, published=128)
    batch_size: int = off_policy_default("batch_size", embedded=32, published=128)
    max_tokens: int = off_policy_default("max_tokens", embedded=8, published=4096)
    max_length: int = off_policy_default("max_length", embedded=2048, published=16384)
    learning_rate: float = off_policy_default("learning_rate", embedded=5e-3, published=1e-3)
    eval_every: int = off_policy_default("eval_every", embedded=20, published=0)


def workflow(config: Config) -> "Workflow[OffPolicyState]":
    """The stages of a run."""
    from cookhouse.errors import InputError
    from cookhouse.workflows import off_policy_workflow

    if config.teacher_model is None and config.teacher_prompt is None:
        raise InputError(
            "teacher_model is not set; name a base model, a run, or a tinker:// path; or set teacher_prompt, and the "
            "weights that the run begins with teach"
        )
    return off_policy_workflow(config, bundled="arithmetic")


RECIPE = Recipe(
    name="off_policy_distillation",
    description="Learn what a teacher answers to prompts: its tokens, or what it finds most likely at each of them.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
