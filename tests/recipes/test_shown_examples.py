"""What runs keep of their steps to be looked at, over the fake service: the same numbers as in their metrics."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.adapters import Adapters
from cookhouse.recipes import run_async
from cookhouse.rl import group_from_json
from cookhouse.runs.reading.examples import ShownExample, example_steps, read_examples
from cookhouse.runs.reading.used_groups import used_groups
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService
from cookhouse.workflows import StageError

pytestmark = pytest.mark.anyio

FEW: dict[str, Any] = {"max_steps": 2, "num_eval": 2, "num_samples": 1, "batch_size": 4}
ROLLOUTS: dict[str, Any] = {**FEW, "group_size": 2, "max_tokens": 8, "constant_reward_groups": "keep"}


async def run(recipe: str, folder: Path, service: FakeService | None = None, **settings: Any) -> None:
    adapters = Adapters(service=(service or FakeService()).connect)
    await run_async(recipe, {**settings, "log_path": str(folder)}, adapters=adapters)


def trained(shown: Sequence[ShownExample], name: str = "logprobs") -> np.ndarray[Any, Any]:
    """The values of all targets that are trained on, end to end."""
    return np.concatenate([np.array(getattr(each, name), float)[np.array(each.weights) > 0] for each in shown])


async def test_supervised_examples_have_the_loss_of_the_step(tmp_path: Path) -> None:
    """Catches logprobs of other weights, or shifted against the weights."""
    await run("supervised", tmp_path / "run", **FEW, num_shown_examples=64)
    for step, row in enumerate(read_metrics(tmp_path / "run" / "metrics.jsonl")[:2]):
        shown = read_examples(tmp_path / "run", step)
        assert len(shown) == 4
        weights = trained(shown, "weights")
        assert -np.sum(trained(shown) * weights) / weights.sum() == pytest.approx(row["train/loss"], rel=1e-5)


async def test_pairs_have_labels_and_logprobs_where_the_loss_is_computed_here(tmp_path: Path) -> None:
    await run("dpo", tmp_path / "run", **FEW, num_shown_examples=2)
    shown = read_examples(tmp_path / "run", 0)
    assert [each.label for each in shown] == ["chosen", "rejected"] * 2
    assert np.isfinite(trained(shown)).all()


@pytest.mark.parametrize(
    ("recipe", "settings", "parts"),
    [
        ("preference_model", {**FEW, "num_eval": 8}, {"weights"}),
        ("prompt_distillation", FEW, {"weights", "teacher_logprobs"}),
        ("on_policy_distillation", ROLLOUTS, {"weights", "advantages", "sampler_logprobs", "teacher_logprobs"}),
    ],
)
async def test_every_recipe_that_trains_keeps_examples(
    recipe: str, settings: dict[str, Any], parts: set[str], tmp_path: Path
) -> None:
    await run(recipe, tmp_path / "run", **settings)
    assert example_steps(tmp_path / "run") == [0, 1]
    for each in read_examples(tmp_path / "run", 1):
        has = {name for name, value in each.model_dump().items() if value is not None}
        assert has == {"number", "label", "num_before", "num_after", "tokens", "targets", "logprobs", *parts}
    assert (tmp_path / "run" / "rollouts" / "trained-000001.jsonl").exists() == (recipe == "on_policy_distillation")


@pytest.mark.parametrize("settings", [{}, {"num_minibatches": 2}, {"ppo_epochs": 2, "loss_fn": "ppo"}])
async def test_rollouts_have_the_divergence_of_the_step(settings: dict[str, Any], tmp_path: Path) -> None:
    """Catches logprobs at other tokens than those that were sampled, in files of a group each and in examples alike."""
    folder = tmp_path / "run"
    await run("rl_basic", folder, **ROLLOUTS, **settings, num_shown_examples=64)
    row = read_metrics(folder / "metrics.jsonl")[0]
    lines = [json.loads(line) for line in (folder / "rollouts" / "trained-000000.jsonl").read_text().splitlines()]
    assert [(line["step"], line["number"]) for line in lines] == used_groups(folder, 0)
    groups = [json.loads(line) for line in (folder / "rollouts" / "000000.jsonl").read_text().splitlines()]
    by_number = {line["number"]: group_from_json(json.dumps(line["group"])) for line in groups}
    gaps = [
        q - lp
        for line in lines
        for trajectory, turns in zip(by_number[line["number"]].trajectories_G, line["logprobs"], strict=True)
        for transition, logprobs in zip(trajectory.transitions, turns, strict=True)
        for q, lp in zip(transition.action.logprobs, logprobs, strict=True)
    ]
    shown = read_examples(folder, 0)
    assert len(shown) == 8
    assert trained(shown, "sampler_logprobs") - trained(shown) == pytest.approx(gaps, abs=1e-5)
    if "ppo_epochs" not in settings:  # the metric is a mean over both passes
        assert np.mean(gaps) == pytest.approx(row["optim/kl_sample_train_v1"], abs=1e-5)


async def test_a_resumed_run_keeps_each_step_once_and_may_keep_fewer(tmp_path: Path) -> None:
    """Catches examples of steps that a run took before it broke off, and has not taken again."""
    folder, states = tmp_path / "run", FakeService().states

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 3):
            raise RuntimeError("broken")

    small = {**FEW, "max_steps": 5, "save_every": 2}
    with pytest.raises(StageError, match="broken"):
        await run("supervised", folder, FakeService(states=states, gate=gate), **small)
    assert example_steps(folder) == [0, 1, 2]
    again = {"behavior_if_log_dir_exists": "resume", "num_shown_examples": 0}
    await run("supervised", folder, FakeService(states=states), **small, **again)
    assert example_steps(folder) == [0, 1]
    assert len(read_metrics(folder / "metrics.jsonl")) == 6
