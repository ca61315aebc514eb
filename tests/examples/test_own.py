"""The examples run as they stand, over the fake service."""

import html
import json
import math
import re
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chz
import numpy as np
import pytest
import tinker
from tests.recipes.test_every_setting import READ_ELSEWHERE, SMALL
from typer.testing import CliRunner

from cookhouse.adapters import Adapters
from cookhouse.assets import new_file
from cookhouse.cli.main import app
from cookhouse.errors import ServiceError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async, sweep
from cookhouse.report import compare
from cookhouse.rl import TrajectoryGroup
from cookhouse.runs import read_record
from cookhouse.telemetry import read_metrics
from cookhouse.testing import unread_settings
from cookhouse.training import FakeService

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_declared")]

EXAMPLES = Path(__file__).parents[2] / "examples"


def digit(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    del theta, prompt_T
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(f" {chance.integers(9)}\n", add_special_tokens=False)
    return answer


def shopper(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Calls a tool, not always for a thing that the shop has, and repeats what the tool said."""
    del theta
    tokenizer = get_tokenizer("cookhouse/tiny")
    prompt = str(tokenizer.decode(prompt_T))
    *_, question = re.findall(r"What does the (\w+) cost", prompt)
    _, _, result = prompt.rpartition("<tool_response>\n")
    item = question if chance.integers(2) else "spoon"
    call = f'<tool_call>\n{{"name": "price", "arguments": {{"item": "{item}"}}}}\n</tool_call>'
    said = result.partition("\n")[0] if "<tool_response>" in prompt else call
    answer: list[int] = tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)
    return answer


async def run(recipe: str, folder: Path, *, answer: Any = digit, **settings: Any) -> list[dict[str, float]]:
    service = FakeService(answer=answer)
    config = {"log_path": str(folder / "run"), "num_samples": 0, **settings}
    await run_async(recipe, config, adapters=Adapters(service=service.connect, sinks=[]))
    return read_metrics(folder / "run" / "metrics.jsonl")


def conversations(folder: Path) -> str:
    rows = [{"prompt": f"say {n}", "completion": f"{n} is said" * (1 + n % 9)} for n in range(12)]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


async def test_an_environment_and_an_advantage(tmp_path: Path) -> None:
    rows = await run(
        "rl",
        tmp_path,
        env=f"{EXAMPLES}/own_environment.py:build",
        advantage=f"{EXAMPLES}/rl_loss.py:ranked",
        max_steps=2,
        batch_size=3,
        group_size=4,
        num_eval=4,
    )
    assert rows[0]["env/all/turns_per_episode"] > 1
    assert "test/env/all/correct" in rows[0]
    lines = (tmp_path / "run" / "rollouts" / "advantages-000000.jsonl").read_text().splitlines()
    kept = [json.loads(line)["advantages"] for line in lines]
    assert all(abs(turn) <= 1.0 for group in kept for member in group for turn in member)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """What `cookhouse new tools` writes."""
    path = tmp_path / "shop.py"
    path.write_text(new_file("tools.py.txt").read_text().replace("NAME", "shop"))
    return path


async def test_tools(tmp_path: Path, tools: Path) -> None:
    """Catches calls that are not answered, answers that no page shows, and errors that no metric counts."""
    rows = await run(
        "rl",
        tmp_path,
        answer=shopper,
        env=f"{tools}:build",
        renderer_name="qwen3_instruct",
        max_tokens=60,
        max_steps=1,
        batch_size=4,
        group_size=8,
        num_eval=4,
    )
    assert rows[0]["env/all/turns_per_episode"] == 2
    assert rows[0]["env/all/tool_calls"] == 0.5, "one call in every two turns"
    # A call for a thing that the shop has is answered with the price, and any other with an error.
    assert 0 < rows[0]["env/all/reward/total"] < 1
    assert rows[0]["env/all/tool_errors"] == pytest.approx((1 - rows[0]["env/all/reward/total"]) / 2)
    page = html.unescape((tmp_path / "run" / "rollouts" / "000000.html").read_text())
    assert '{"name": "price", "arguments": {"item": "spoon"}}' in page
    assert "error: no spoon; there are apple, bread, candle, goat" in page


async def test_calls_of_tools_are_trained_on(tmp_path: Path, tools: Path) -> None:
    """Catches conversations that are no rows, and tools that are declared there otherwise than in episodes."""
    rows = await run(
        "supervised",
        tmp_path,
        dataset_path=f"{tools}:calls",
        renderer_name="qwen3_instruct",
        batch_size=4,
        max_steps=1,
    )
    assert len([row for row in rows if "train/loss" in row]) == 1
    example = runpy.run_path(str(tools))
    declaration, _ = await example["shop"](("goat", {"goat": 1})).initial_observation()
    assert all(row["tools"] == declaration["tools"] for row in example["calls"]())


def buyer(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Asks one shop or another, and repeats what it said."""
    del theta
    tokenizer = get_tokenizer("cookhouse/tiny")
    _, is_answered, result = str(tokenizer.decode(prompt_T)).rpartition("<tool_response>\n")
    shop = ("north", "east")[chance.integers(2)]
    call = f'<tool_call>\n{{"name": "price", "arguments": {{"shop": "{shop}"}}}}\n</tool_call>'
    said = result.partition("\n")[0] if is_answered else call
    answer: list[int] = tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)
    return answer


async def test_an_agent(tmp_path: Path) -> None:
    """Catches calls that the loop does not answer, and turns that are tokenized again."""
    rows = await run(
        "rl",
        tmp_path,
        answer=buyer,
        env="agent",
        agent=f"{EXAMPLES}/own_agent.py:buy",
        dataset_path=f"{EXAMPLES}/own_agent.py:tasks",
        renderer_name="qwen3_instruct",
        max_tokens=60,
        max_steps=1,
        batch_size=4,
        group_size=8,
    )
    assert rows[0]["env/all/turns_per_episode"] == 2
    assert rows[0]["env/all/tool_calls"] == 0.5, "one call in every two turns"
    assert rows[0]["env/all/tokens_again"] == 0
    assert 0 < rows[0]["env/all/reward/total"] < 1
    page = html.unescape((tmp_path / "run" / "rollouts" / "000000.html").read_text())
    assert '{"name": "price", "arguments": {"shop": "north"}}' in page
    assert "sold out" in page


async def test_calls_of_an_agent_are_trained_on(tmp_path: Path) -> None:
    """Catches conversations that are no rows, and a tool that is declared otherwise than the agent declares it."""
    settings = {"dataset_path": f"{EXAMPLES}/own_agent.py:calls", "renderer_name": "qwen3_instruct"}
    rows = await run("supervised", tmp_path, **settings, batch_size=4, max_steps=1)
    assert len([row for row in rows if "train/loss" in row]) == 1
    example = runpy.run_path(f"{EXAMPLES}/own_agent.py")
    assert all(row["tools"] == [example["PRICE"]] for row in example["calls"]())


async def test_a_loss(tmp_path: Path) -> None:
    data = {"dataset_path": conversations(tmp_path), "batch_size": 4, "num_eval": 0, "max_steps": 3}
    rows = await run("supervised", tmp_path, loss_fn=f"{EXAMPLES}/own_loss.py:focal", learning_rate=0.3, **data)
    likely = [row["train/mean_probability"] for row in rows]
    assert 0 < likely[0] < likely[-1] < 1
    (declared,) = read_record(tmp_path / "run").declared.values()
    assert (declared.name, declared.chart) == ("mean_probability", 15)


async def test_a_data_set(tmp_path: Path) -> None:
    own = f"{EXAMPLES}/own_dataset.py"
    data = {"dataset_path": f"{own}:plurals", "test_path": f"{own}:held_out"}
    rows = await run("supervised", tmp_path, batch_size=4, num_epochs=1, learning_rate=0.3, **data)
    assert rows[-1]["test/nll"] < rows[0]["test/nll"]


async def test_a_recipe_with_a_stage_an_evaluator_and_a_sink(tmp_path: Path) -> None:
    data = {"dataset_path": conversations(tmp_path), "batch_size": 2, "num_epochs": 3}
    rows = await run(f"{EXAMPLES}/own_recipe.py:BRIEF", tmp_path, longest_answer=30, **data)
    assert [row["step"] for row in rows if "test/answer_tokens" in row] == [5, len(rows) - 1]
    compared = compare({"run": read_record(tmp_path / "run")})
    headline, own = compared.metrics[:2]
    assert (headline.name, own.name, own.metric.direction) == ("train/loss", "test/answer_tokens", "less")
    losses = (tmp_path / "run" / "losses.txt").read_text().splitlines()
    assert [float(line.split()[1]) for line in losses] == [row["train/loss"] for row in rows if "train/loss" in row]


@pytest.fixture
def sums(tmp_path: Path) -> dict[str, Any]:
    """Settings of a short run over sums."""
    rows = [{"question": f"Compute {n} + 1.", "answer": str(n + 1), "skill": "add"} for n in range(8)]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = {"batch_size": 4, "group_size": 16, "num_eval": 4, "num_samples": 0, "learning_rate": 0.3}
    return {"dataset_path": str(path), "num_epochs": 4, "max_steps": 5, **small}


async def test_pairs_of_own_answers(tmp_path: Path, sums: dict[str, Any]) -> None:
    """Catches pairs that are no pairs, and a reference that follows the weights."""
    rows = await run(f"{EXAMPLES}/online_dpo.py:RECIPE", tmp_path, **sums)
    trained = [row for row in rows if "train/margin" in row]
    assert len(trained) == 5
    assert all(row["train/num_pairs"] > 0 for row in trained)
    assert trained[0]["train/margin"] == 0
    assert trained[-1]["train/margin"] != 0
    assert all(math.isfinite(row["train/dpo_loss"]) for row in trained)
    assert list((tmp_path / "run" / "rollouts").glob("test-*.html"))


async def test_an_advantage_per_token_of_the_teacher(tmp_path: Path, sums: dict[str, Any]) -> None:
    """Catches a term that a run does not take, and one that is not bounded where the teacher is surprised."""
    example = runpy.run_path(f"{EXAMPLES}/shaped_distillation.py")
    terms_S = example["skewed"](np.array([-1.0, -1.0, -1.0]), np.array([-1.0, -80.0, 0.0]), 0.1)
    assert terms_S == pytest.approx(
        [0.0, math.log(0.1) + 0.9, math.log(0.9 * math.e + 0.1) + 0.1 * (1 / (0.9 * math.e + 0.1) - 1)]
    )
    for skew in (0.1, 0.9):
        await run(f"{EXAMPLES}/shaped_distillation.py:RECIPE", tmp_path / str(skew), **sums, skew=skew)
    first, second = (read_metrics(tmp_path / name / "run" / "metrics.jsonl") for name in ("0.1", "0.9"))
    assert first[0]["teacher_kl"] == second[0]["teacher_kl"]
    assert first[0]["optim/policy_loss"] != second[0]["optim/policy_loss"]


ALGORITHMS = {"online_dpo": "dpo_beta", "rl_loss": "loss_fn", "curriculum": "advantage", "shaped_distillation": "skew"}
"""The examples of an algorithm, each with a setting that it reads."""


def figures(folder: Path) -> list[dict[str, float]]:
    """Everything measured that does not depend on the clock."""
    rows = read_metrics(folder / "metrics.jsonl")
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.mark.parametrize("example", ALGORITHMS)
async def test_an_algorithm_that_is_killed_goes_on_as_if_it_was_not(
    example: str, tmp_path: Path, sums: dict[str, Any]
) -> None:
    """Catches state between steps that no checkpoint has, such as what a curriculum remembers."""

    async def launch(service: FakeService, **more: Any) -> Any:
        settings = {**sums, "save_every": 2, "eval_every": 3, **more}
        adapters = Adapters(service=service.connect, sinks=[])
        return await run_async(f"{EXAMPLES}/{example}.py:RECIPE", settings, adapters=adapters)

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 3):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    whole = await launch(FakeService(answer=digit), log_path=str(tmp_path / "whole"))
    rows = figures(tmp_path / "whole")
    assert "test/env/all/reward/total" in rows[0]
    assert "test/env/all/reward/total" in whole.metrics
    assert (tmp_path / "whole" / "report.html").exists()
    broken = FakeService(answer=digit, gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await launch(broken, log_path=str(tmp_path / "broken"))
    later = FakeService(answer=digit, states=broken.states)
    await launch(later, log_path=str(tmp_path / "broken"), behavior_if_log_dir_exists="resume")
    assert "load_state" in {call.kind for call in later.calls}
    assert figures(tmp_path / "broken") == rows


@pytest.mark.parametrize("example", ALGORITHMS)
def test_an_algorithm_has_a_plan_help_and_sweeps(example: str, tmp_path: Path, sums: dict[str, Any]) -> None:
    """Catches an example that is no recipe as others are."""
    recipe = f"{EXAMPLES}/{example}.py:RECIPE"
    assert dry_run(recipe, sums).facts["steps"] == "5 in all, 2 per epoch"
    shown = CliRunner().invoke(app, ["run", recipe, "--help-all"], catch_exceptions=False).output
    assert re.search(rf"^ *--{ALGORITHMS[example].replace('_', '-')}\b", shown, re.MULTILINE)
    settings = {**sums, "max_steps": 1, "log_path": str(tmp_path / "sweep")}
    del settings["learning_rate"]
    service = FakeService(answer=digit)
    adapters = Adapters(service=service.connect, sinks=[])
    sweep(recipe, settings, grid={"learning_rate": [0.1, 0.3]}, metric="test/env/all/reward/total", adapters=adapters)
    table = (tmp_path / "sweep" / "sweep.csv").read_text().splitlines()
    assert len(table) == 3


def test_an_algorithm_takes_no_setting_that_it_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches settings of advantages or of lag that it accepts, and that change nothing."""
    monkeypatch.chdir(tmp_path)
    # No-op answers are all worth the same.
    monkeypatch.setattr(TrajectoryGroup, "get_total_rewards", lambda group: [*range(len(group.trajectories_G))])
    recipe = find_recipe(f"{EXAMPLES}/online_dpo.py:RECIPE")
    small = {name: value for name, value in SMALL.items() if name in chz.chz_fields(recipe.config_class)}
    assert unread_settings(recipe, {**small, "log_path": "run"}) - READ_ELSEWHERE.keys() == set()
