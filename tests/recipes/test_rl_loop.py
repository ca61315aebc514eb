"""The flat recipe rl_loop: the same losses as rl_basic, and its place among the recipes."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest

from cookhouse.adapters import Adapters
from cookhouse.cli.main import main
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, rl_basic, rl_loop, run_async
from cookhouse.service.local import local_server
from cookhouse.telemetry import read_metrics
from cookhouse.training import Connect, FakeService, connect_to

pytestmark = pytest.mark.anyio

SAME = ("optim/loss", "optim/lr", "env/all/reward/total")
"""Metrics that both recipes write under one name."""


def guesser(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Right, wrong, cut off or no number at all, by chance and by what has been trained."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    a, b = re.findall(r"(\d+) \+ (\d+)", tokenizer.decode(prompt_T))[-1]
    wrong = int(chance.integers(3))
    ending = "\n" if chance.random() < 0.5 + theta.max() / 4 else ""
    said = "what?" if chance.random() < 0.2 else str(int(a) + int(b) + wrong)
    tokens: list[int] = tokenizer.encode(f" {said}{ending}", add_special_tokens=False)
    return tokens


def make_config(log_path: Path, **settings: Any) -> rl_loop.Config:
    return rl_loop.Config(**(settings | {"log_path": str(log_path)}))


@pytest.fixture
def problems(tmp_path: Path) -> str:
    rows = [{"question": f"Compute {a} + {b}.", "answer": str(a + b)} for a in range(10, 14) for b in range(5)]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


async def both(folder: Path, connect: Callable[[], Connect], **settings: Any) -> tuple[list[Any], list[Any]]:
    """Metrics of a run of each recipe."""
    unlike_flat = {"log_path": str(folder / "basic"), "num_eval": 0, "save_every": 0, "metrics": "all"}
    basic = rl_basic.Config(**(settings | unlike_flat))
    await run_async("rl_loop", make_config(folder / "flat", **settings), adapters=Adapters(service=connect()))
    await run_async("rl_basic", basic, adapters=Adapters(service=connect()))
    found = [
        [[row[name] for name in SAME] for row in read_metrics(folder / name / "metrics.jsonl") if SAME[0] in row]
        for name in ("flat", "basic")
    ]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("shrunk", "num_steps"), [({"max_steps": 4}, 4), ({"n_train_samples": 14}, 3), ({"n_batches": 2}, 2)]
)
async def test_losses_are_those_of_rl_basic(
    tmp_path: Path, problems: str, shrunk: dict[str, int], num_steps: int
) -> None:
    # Catches a loop of ours, or this file, that samples, rewards, assembles or steps otherwise than it says.
    flat, basic = await both(
        tmp_path,
        lambda: FakeService(answer=guesser).connect,
        dataset_path=problems,
        batch_size=6,  # of 20 problems: the last step has two
        group_size=6,
        learning_rate=0.3,
        seed=3,
        lr_schedule="cosine",
        **shrunk,
    )
    assert flat == basic
    assert len({loss for loss, *_ in flat}) == num_steps


@pytest.mark.slow
@pytest.mark.usefixtures("fused_sampling")
async def test_losses_are_those_of_rl_basic_on_the_embedded_engine(tmp_path: Path) -> None:
    # Catches a difference that the fake service cannot see: in the order of requests, in stop sequences or in seeds.
    async with local_server(tmp_path / "service", base_models=["cookhouse/tiny"]) as server:
        flat, basic = await both(
            tmp_path, lambda: connect_to(server.url, server.api_key), batch_size=2, group_size=4, max_steps=2
        )
    assert flat == basic
    assert len(flat) == 2


async def test_a_run_leaves_weights_that_can_be_found(tmp_path: Path, problems: str) -> None:
    # Catches a flat run whose outcome `cookhouse sample RUN` and the report know nothing of.
    service = FakeService(answer=guesser)
    config = make_config(tmp_path / "run", dataset_path=problems, batch_size=4, group_size=2)
    result = await run_async("rl_loop", config, adapters=Adapters(service=service.connect))
    summary = result.summary
    assert (summary.num_steps, summary.total_steps, summary.is_interrupted) == (5, 5, False)
    assert summary.sampler_path in service.states
    assert service.closed_with == "success"
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (recorded["recipe"], recorded["config"]["renderer_name"]) == ("rl_loop", "human_ai")
    checkpoints = (tmp_path / "run" / "checkpoints.jsonl").read_text()
    assert json.loads(checkpoints)["sampler_path"] == summary.sampler_path
    assert "env/all/reward/total" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"lora_rank": -1}, "lora_rank is -1; it must be at least 0"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0; it must be a number above 0"),
        ({"dataset_path": "missing.jsonl"}, "missing.jsonl does not exist"),
    ],
)
async def test_bad_settings_are_named_and_leave_no_folder(
    tmp_path: Path, problems: str, settings: dict[str, Any], message: str
) -> None:
    config = {"dataset_path": problems, "log_path": str(tmp_path / "run"), **settings}
    service = FakeService(answer=guesser)
    with pytest.raises(InputError, match=re.escape(message)):
        await run_async("rl_loop", config, adapters=Adapters(service=service.connect))
    assert not (tmp_path / "run").exists()
    assert not service.calls


def test_rank_0_is_that_of_all_weights() -> None:
    assert chz.replace(rl_loop.Config(), lora_rank=0).lora_rank == 0


async def test_refused_service_leaves_no_folder(tmp_path: Path) -> None:
    async def refuse() -> FakeService:
        raise InputError("no such model")

    with pytest.raises(InputError, match="no such model"):
        await run_async("rl_loop", make_config(tmp_path / "run"), adapters=Adapters(service=refuse))
    assert not (tmp_path / "run").exists()


async def test_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="there is no terminal to ask on"):
        await run_async("rl_loop", make_config(tmp_path), adapters=Adapters(service=FakeService().connect))
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"


async def test_failure_in_the_middle_keeps_the_metrics(tmp_path: Path, problems: str) -> None:
    # Catches a discard that takes what was trained with it, and a session that is never closed.
    async def fail(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 1):
            raise InputError("out of luck")

    service = FakeService(answer=guesser, gate=fail)
    config = make_config(tmp_path / "run", dataset_path=problems, batch_size=4, group_size=2)
    with pytest.raises(InputError, match="out of luck"):
        await run_async("rl_loop", config, adapters=Adapters(service=service.connect))
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 1
    assert service.closed_with == "errored"


async def test_it_is_shown_as_the_file_that_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["describe", "rl_loop"])
    assert "└── train" in capsys.readouterr().out
    plan = await asyncio.to_thread(dry_run, "rl_loop", make_config(tmp_path / "run", batch_size=100))
    assert plan.facts["code"] == rl_loop.__file__
    assert plan.facts["steps"] == "24 in all"
    assert not (tmp_path / "run").exists()
