"""Settings of every recipe that trains reach the requests that they are about."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import RECIPES, find_recipe, run_async
from cookhouse.training import FakeService, FakeTrainingClient

pytestmark = pytest.mark.anyio

UPDATE = {"weight_decay": 0.125, "grad_clip_norm": 0.5}
ADAPTED = {"train_mlp": False, "train_attn": True, "train_unembed": False}
RECIPES_RUN = ("supervised", "rl_basic", "rl_loop", "dpo", "preference_model")
"""One of each kind: the settings of the others come from the same class."""


def word(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Answers one of two numbers."""
    del theta, prompt_T
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(f" {chance.integers(2)}\n", add_special_tokens=False)
    return answer


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    conversations = [{"prompt": f"say {number}", "completion": str(number)} for number in range(4)]
    problems = [{"question": f"Compute {number} + 0.", "answer": str(number)} for number in range(4)]
    pairs = [{"prompt": f"say {number}", "chosen": f"{number}", "rejected": "no"} for number in range(4)]
    for name, rows in (("supervised", conversations), ("rl", problems), ("dpo", pairs)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(recipe: str, **settings: Any) -> Any:
        kind = {"supervised": "supervised", "dpo": "dpo", "preference_model": "dpo"}.get(recipe, "rl")
        known = chz.chz_fields(find_recipe(recipe).config_class)
        small = {"batch_size": 2, "group_size": 2, "num_eval": 0, "dataset_path": str(tmp_path / f"{kind}.jsonl")}
        every = {"max_steps": 2, "learning_rate": 0.1, "log_path": str(tmp_path / "run"), **small, **settings}
        return find_recipe(recipe).config_class(**{name: value for name, value in every.items() if name in known})

    return config


@pytest.mark.parametrize("recipe", RECIPES_RUN)
async def test_the_optimizer_is_asked_as_the_config_says(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    # Catches a setting that is read, recorded in config.json, and goes nowhere.
    asked: list[tinker.AdamParams] = []
    step = FakeTrainingClient.optim_step

    def spy(client: FakeTrainingClient, adam: tinker.AdamParams) -> Any:
        asked.append(adam)
        return step(client, adam)

    monkeypatch.setattr(FakeTrainingClient, "optim_step", spy)
    await run_async(recipe, make(recipe, **UPDATE), adapters=Adapters(service=FakeService(answer=word).connect))
    assert [(adam.weight_decay, adam.grad_clip_norm) for adam in asked] == [(0.125, 0.5)] * 2
    assert {(adam.beta1, adam.beta2, adam.eps) for adam in asked} == {(0.9, 0.95, 1e-8)}


@pytest.mark.parametrize("recipe", RECIPES_RUN)
async def test_the_adapter_is_the_one_that_the_config_says(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    asked: list[dict[str, Any]] = []
    create = FakeService.create_lora_training_client

    def spy(service: FakeService, base_model: str, **settings: Any) -> Any:
        asked.append({"base_model": base_model, **settings})
        return create(service, base_model, **settings)

    monkeypatch.setattr(FakeService, "create_lora_training_client", spy)
    config = make(recipe, lora_rank=5, seed=9, user_metadata={"team": "a"}, **ADAPTED)
    await run_async(recipe, config, adapters=Adapters(service=FakeService(answer=word).connect))
    trained, *references = asked
    rendered = {"user_metadata": {"team": "a", "renderer_name": config.renderer_name}}
    assert trained == {"base_model": "cookhouse/tiny", "rank": 5, "seed": 9, **ADAPTED, **rendered}
    # A fresh adapter of the least rank is the base model itself.
    assert references in ([], [{"base_model": "cookhouse/tiny", "rank": 1, "seed": 9}])


@pytest.mark.parametrize("recipe", sorted(set(RECIPES.names()) - {"eval"}))
def test_every_recipe_has_them(recipe: str) -> None:
    assert {*UPDATE, *ADAPTED, "lr_schedule", "user_metadata"} <= set(chz.chz_fields(find_recipe(recipe).config_class))


@pytest.mark.parametrize("recipe", RECIPES_RUN)
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"weight_decay": -0.1}, "weight_decay is -0.1; it must be at least 0"),
        ({"grad_clip_norm": float("nan")}, "grad_clip_norm is nan"),
        (dict.fromkeys(ADAPTED, False), "all false; at least one must be true"),
        ({"lora_rank": 0, "train_attn": False}, "lora_rank=0 trains all weights"),
        (
            {"user_metadata": {"renderer_name": "mine"}},
            "user_metadata has renderer_name, which every run tells by itself",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    make: Callable[..., Any], recipe: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        make(recipe, **settings)


def test_code_of_larger_models_is_learned_by_ppo() -> None:
    # Catches defaults of the embedded model taken for all, and a clip that no other loss takes.
    config = find_recipe("code_rl").config_class
    large = config(model_name="Qwen/Qwen3-8B")
    assert (large.loss_fn, large.clip_low, large.clip_high, large.ppo_epochs) == ("ppo", 0.8, 1.2, 4)
    assert (large.advantage, large.gamma, large.gae_lambda) == ("gae", 0.99, 0.95)
    assert (large.group_size, large.batch_size, large.learning_rate, large.max_tokens) == (4, 100, 1e-5, 1024)
    other = config(model_name="Qwen/Qwen3-8B", loss_fn="importance_sampling")
    assert (other.clip_low, other.clip_high, other.ppo_epochs) == (None, None, 1)
    tiny = config()
    assert (tiny.loss_fn, tiny.ppo_epochs, tiny.advantage) == ("importance_sampling", 1, "group_centered")
