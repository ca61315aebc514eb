"""Prompt distillation: a teacher answers with a prompt, and the student learns to answer so without it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import chz

from cookhouse.assets import TINY_MODEL, data_file
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.recipes.reinforcement import off_policy_default, plain_renderer
from cookhouse.settings import Default, OffPolicyDistillationSettings, computed, is_embedded, published_model, redefault
from cookhouse.settings.defaults import is_left_open

if TYPE_CHECKING:
    from cookhouse.workflows import OffPolicyState, Workflow

_START = "cookhouse/tiny-chat"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A prompt to do without, and the bundled rows that it is about."""

    folder: str
    prompt: str
    answer_pattern: str | None = None
    """What is learned of an answer to the prompt."""


def _instruction() -> str:
    return data_file("languages/instruction.txt").read_text(encoding="utf-8")


CASES: Mapping[str, Callable[[], Case]] = {
    "polite": lambda: Case(folder="conversations", prompt="You are a polite assistant."),
    "languages": lambda: Case(folder="languages", prompt=_instruction(), answer_pattern=r"Final Answer: (\w\w)"),
}


def _case_name(config: "Config") -> str | None:
    """The embedded model follows no prompt before it has learned to, and no long one at all."""
    if is_embedded(config):
        return "polite"
    return "languages" if config.dataset_path in (None, "bundled") else None


def _case(config: "Config") -> Case | None:
    return None if config.case is None else CASES[config.case]()


def _prompt(config: "Config") -> str | None:
    case = _case(config)
    return None if case is None else case.prompt


def _answer_pattern(config: "Config") -> str | None:
    case = _case(config)
    return None if case is None or not is_left_open(config, "teacher_prompt") else case.answer_pattern


def _start(config: "Config") -> str | None:
    return _START if is_embedded(config) and config.case == "polite" else None


@chz.chz
class Config(OffPolicyDistillationSettings):
    """Settings of the recipe. The teacher is what the run begins with, but for its prompt."""

    model_name: str = published_model("Qwen/Qwen3.6-35B-A3B")
    case: Literal["polite", "languages"] | None = computed(
        Default(_case_name, f"polite for {TINY_MODEL}; else languages, where dataset_path is not set"),
        Literal["polite", "languages"],
        "A bundled prompt and its rows: polite, to answer so, or languages, to name that of a sentence by its letters.",
    )
    load_checkpoint_path: str | None = redefault(
        OffPolicyDistillationSettings,
        "load_checkpoint_path",
        Default(_start, f"{_START!r} for {TINY_MODEL} and the case polite, else none"),
    )
    teacher_prompt: str | None = redefault(
        OffPolicyDistillationSettings, "teacher_prompt", Default(_prompt, "that of the case")
    )
    answer_pattern: str | None = redefault(
        OffPolicyDistillationSettings, "answer_pattern", Default(_answer_pattern, "that of the case's prompt")
    )
    renderer_name: str = plain_renderer()
    batch_size: int = off_policy_default("batch_size", embedded=32, published=128)
    num_epochs: int = off_policy_default("num_epochs", embedded=1, published=4)
    max_tokens: int = off_policy_default("max_tokens", embedded=48, published=1000)
    temperature: float = redefault(OffPolicyDistillationSettings, "temperature", 0.15)
    learning_rate: float = off_policy_default("learning_rate", embedded=2e-3, published=1e-4)
    max_steps: int | None = off_policy_default("max_steps", embedded=60, published=None)
    eval_every: int = off_policy_default("eval_every", embedded=20, published=0)


def workflow(config: Config) -> "Workflow[OffPolicyState]":
    """The stages of a run."""
    from cookhouse.errors import InputError
    from cookhouse.workflows import off_policy_workflow

    if config.teacher_prompt is None:
        raise InputError(
            "teacher_prompt is not set; give what the student is to do without, as a text or @FILE, or a case: "
            + ", ".join(CASES)
        )
    case = _case(config)
    return off_policy_workflow(config, bundled="conversations" if case is None else case.folder)


RECIPE = Recipe(
    name="prompt_distillation",
    description="Learn to answer without a prompt as a teacher does with it.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
