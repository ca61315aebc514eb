"""What a plan says will be sent, and what was: to 5 % where that can be known, and never more where it is a bound."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.recipes.test_spending import HostedFake

from cookhouse.adapters import Adapters
from cookhouse.recipes import dry_run, run_async
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio
ALONE = {"num_eval": 0, "num_samples": 0, "save_every": 0, "view": False}


def conversations(path: Path, count: int, *, longer: int = 0) -> str:
    turns = [
        [
            {"role": "user", "content": f"Say {n}." + " please" * longer},
            {"role": "assistant", "content": "ok " * (n % 7)},
        ]
        for n in range(1, count + 1)
    ]
    path.write_text("".join(json.dumps({"messages": said}) + "\n" for said in turns))
    return str(path)


def pairs(path: Path) -> str:
    rows = [
        {"prompt": f"Say {n}.", "chosen": f"It is {n}." + " well" * n, "rejected": f"Go away {n}."}
        for n in range(1, 12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def problems(path: Path) -> str:
    rows = [{"question": f"Compute {n} + 1.", "answer": str(n + 1)} for n in range(7)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


async def planned_and_used(recipe: str, config: dict[str, Any], tmp_path: Path, kind: str) -> tuple[str, float, float]:
    whole = {**ALONE, **config, "log_path": str(tmp_path / "run")}
    plan = await asyncio.to_thread(dry_run, recipe, whole, adapters=Adapters(service=FakeService().connect))
    said = plan.facts["usage"]
    result = await run_async(recipe, whole, adapters=Adapters(service=HostedFake().connect, sinks=[]))
    assert result.summary.usage is not None
    assert plan.facts["steps"].startswith(f"{result.summary.num_steps:,} in all")
    count = re.search(r"([\d,]+) tokens", said)
    assert count is not None
    return said, float(count[1].replace(",", "")), result.summary.usage[kind]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("supervised", {"batch_size": 5, "num_epochs": 2}),
        ("supervised", {"batch_size": 6, "mixed": True}),
        ("dpo", {"batch_size": 8, "num_epochs": 2}),
        ("dpo", {"batch_size": 4, "max_steps": 2}),
        ("preference_model", {"batch_size": 8}),
    ],
)
async def test_trained_tokens_are_known_to_a_twentieth(
    recipe: str, settings: dict[str, Any], is_streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches batches that count as full where the last is not, tokens for positions, and a small set counted as often
    as the largest.
    """
    if is_streamed:
        monkeypatch.setattr("cookhouse.data.batches.stream.MAX_WHOLE_BYTES", 0)
    config = {name: value for name, value in settings.items() if name != "mixed"}
    if recipe == "supervised":
        config["dataset_path"] = conversations(tmp_path / "a.jsonl", 12)
        if "mixed" in settings:
            config["dataset_path"] += f",{conversations(tmp_path / 'b.jsonl', 3, longer=5)}"
            config["dataset_weights"] = "1,1"
    else:
        config["dataset_path"] = pairs(tmp_path / "pairs.jsonl")
    said, planned, used = await planned_and_used(recipe, config, tmp_path, "trained_tokens")
    assert planned == pytest.approx(used, rel=0.05)
    assert ("about" in said) == (is_streamed and recipe != "preference_model")


@pytest.mark.parametrize(
    ("recipe", "settings", "bound"),
    [
        ("rl_basic", {"batch_size": 4, "group_size": 2, "max_tokens": 5, "num_epochs": 2, "max_steps": 4}, 140),
        (
            "rl_basic",
            {"batch_size": 4, "group_size": 2, "max_tokens": 5, "max_steps": 2, "constant_reward_groups": "replace"}
            | {"max_batches_drawn": 2},
            140,
        ),
        ("off_policy_distillation", {"batch_size": 4, "max_tokens": 5, "max_steps": 2}, 35),
        ("on_policy_distillation", {"batch_size": 4, "group_size": 2, "max_tokens": 5, "max_steps": 2}, 70),
    ],
)
async def test_sampled_tokens_are_bounded_by_the_batches_that_there_are(
    recipe: str, settings: dict[str, Any], bound: float, tmp_path: Path
) -> None:
    """Catches a bound of full batches of little data, and one that groups drawn anew pass."""
    config = {**settings, "dataset_path": problems(tmp_path / "problems.jsonl")}
    if recipe != "off_policy_distillation":
        config["test_path"] = config["dataset_path"]
    said, planned, used = await planned_and_used(recipe, config, tmp_path, "sampled_tokens")
    assert said.startswith("at most ")
    assert used <= planned == bound


@pytest.mark.parametrize("train_unembed", [True, False])
def test_a_dry_run_says_what_servers_refuse(train_unembed: bool, tmp_path: Path) -> None:
    """Catches a run of hours whose adapter turns out not to be served."""
    settings = {"train_unembed": train_unembed, "max_steps": 1, "log_path": str(tmp_path / "run")}
    said = dict(dry_run("supervised", settings).facts).get("serving", "")
    assert ("vLLM refuses an adapter on lm_head" in said) is train_unembed


def test_the_memory_of_an_adapter_is_that_of_the_engines() -> None:
    """Catches a moment, or a copy of the weights, that the plan's figure does not have."""
    import torch

    from cookhouse.algorithms.base.facts import adapter_size
    from cookhouse.engine.lora.adapter import Trained
    from cookhouse.recipes.supervised import SupervisedConfig

    figure = re.match(r"([\d,]+) parameters, ([\d.]+) MB", adapter_size(SupervisedConfig()))
    assert figure is not None
    made = Trained(params=torch.zeros(int(figure[1].replace(",", ""))))
    held = [made.gradient, *made.tensors(with_optimizer=True).values()]
    assert sum(tensor.nbytes for tensor in held) / 1e6 == pytest.approx(float(figure[2]), rel=0.05)
