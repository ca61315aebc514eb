"""The flat recipe sl_loop: the same losses as supervised, and a sweep that keeps the best."""

import ast
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.recipes import rl_loop, run_async, sl_loop, supervised
from cookhouse.recipes.flat import log_grid
from cookhouse.service.local import local_server
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService, connect_to

pytestmark = pytest.mark.anyio


def make_config(log_path: Path, **settings: Any) -> sl_loop.Config:
    return sl_loop.Config(**(settings | {"log_path": str(log_path)}))


@pytest.fixture
def conversations(tmp_path: Path) -> str:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}?", "completion": f"It is {n}."}) + "\n" for n in range(11)))
    return str(path)


def losses(folder: Path) -> list[tuple[float, float]]:
    rows = read_metrics(folder / "metrics.jsonl")
    return [(row["train/loss"], row["optim/lr"]) for row in rows if "train/loss" in row]


async def both(folder: Path, connect: Any, **settings: Any) -> tuple[Any, Any]:
    """Losses and learning rates of a run of each recipe."""
    unlike_flat = {"log_path": str(folder / "basic"), "num_eval": 0, "num_samples": 0, "save_every": 0}
    config = supervised.SupervisedConfig(**(settings | unlike_flat))
    await run_async("sl_loop", make_config(folder / "flat", **settings), adapters=Adapters(service=connect()))
    await run_async("supervised", config, adapters=Adapters(service=connect()))
    return losses(folder / "flat"), losses(folder / "basic")


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        ({}, 6),
        ({"max_steps": 5}, 5),
        ({"n_train_samples": 7}, 4),
        ({"n_batches": 1}, 2),
        ({"reduction": "mean"}, 6),
        ({"lr_schedule": "warmup_cosine", "warmup_steps": 2}, 6),
    ],
    ids=str,
)
async def test_losses_are_those_of_supervised(
    tmp_path: Path, conversations: str, settings: dict[str, Any], num_steps: int
) -> None:
    # Catches an order, a last batch, a shift or a schedule that is not that of the framework.
    flat, basic = await both(
        tmp_path,
        lambda: FakeService().connect,
        dataset_path=conversations,
        batch_size=4,
        num_epochs=2,
        seed=3,
        **settings,
    )
    assert flat == basic
    assert len(flat) == num_steps


@pytest.mark.slow
async def test_losses_are_those_of_supervised_on_the_embedded_engine(tmp_path: Path) -> None:
    # Catches a difference in requests that the fake service cannot see.
    async with local_server(tmp_path / "service", base_models=["cookhouse/tiny"]) as server:
        flat, basic = await both(
            tmp_path, lambda: connect_to(server.url, server.api_key), batch_size=8, max_steps=3, grad_clip_norm=0.1
        )
    assert flat == basic
    assert len({loss for loss, _ in flat}) == 3


async def test_a_sweep_keeps_the_best(tmp_path: Path, conversations: str) -> None:
    # Catches rates that share one adapter, and a best that is not read back from what was written.
    settings = {"dataset_path": conversations, "batch_size": 4, "sweep": "1e-3,1e-1,3"}
    result = await run_async(
        "sl_loop", make_config(tmp_path / "run", **settings), adapters=Adapters(service=FakeService().connect)
    )
    parts = {name: sl_loop.last_loss(tmp_path / "run" / name) for name in ("lr-0.001", "lr-0.01", "lr-0.1")}
    assert len({losses(tmp_path / "run" / name)[0] for name in parts}) == 3
    assert len({losses(tmp_path / "run" / name)[0][0] for name in parts}) == 1
    best = min(parts, key=lambda name: parts[name])
    assert losses(tmp_path / "run") == losses(tmp_path / "run" / best)
    assert result.metrics["train/loss"] == losses(tmp_path / "run" / best)[-1][0]


@pytest.mark.parametrize("sweep", ["1e-3", "1e-3,1e-2", "1e-2,1e-3,4", "0,1,3", "1e-3,1e-2,1", "a,b,c", "1e-3,inf,3"])
def test_a_sweep_that_is_none_is_refused(sweep: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"sweep is {sweep!r}; write FROM,TO,COUNT")):
        sl_loop.Config(sweep=sweep)


def test_rates_are_evenly_spaced_on_a_log_scale() -> None:
    assert log_grid("1e-4,1e-2,5") == [1e-4, 3.16228e-4, 1e-3, 3.16228e-3, 1e-2]


async def test_a_schedule_that_does_not_fit_is_refused_before_anything_is_opened(
    tmp_path: Path, conversations: str
) -> None:
    settings = {"dataset_path": conversations, "batch_size": 4, "lr_schedule": "warmup_linear", "warmup_steps": 3}
    service = FakeService()
    with pytest.raises(InputError, match="warmup_steps is 3; it must be at least 0 and less than the 3 steps"):
        await run_async(
            "sl_loop", make_config(tmp_path / "run", **settings), adapters=Adapters(service=service.connect)
        )
    assert not service.calls
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("module", [sl_loop, rl_loop], ids=["sl_loop", "rl_loop"])
def test_the_file_is_about_a_hundred_lines_of_code(module: ModuleType) -> None:
    """Catches a flat file that has grown into a framework, or that leans on that of the other recipes."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    tree = ast.parse(text)
    said = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), start=1)
    assert len([1 for at, line in lines if line.strip() and not line.lstrip().startswith("#") and at not in said]) < 120
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.startswith(("cookhouse.workflows", "cookhouse.runs"))}


async def test_bad_data_leaves_no_folder(tmp_path: Path) -> None:
    config = make_config(tmp_path / "run", dataset_path="missing.jsonl")
    with pytest.raises(InputError, match=r"missing\.jsonl does not exist"):
        await run_async("sl_loop", config, adapters=Adapters(service=FakeService().connect))
    assert not (tmp_path / "run").exists()


async def test_sinks_hear_of_a_flat_file_at_its_end(tmp_path: Path, conversations: str) -> None:
    # Catches a setting that is taken and ignored.
    settings = {"dataset_path": conversations, "batch_size": 4, "sinks": "jsonl"}
    await run_async(
        "sl_loop", make_config(tmp_path / "run", **settings), adapters=Adapters(service=FakeService().connect)
    )
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    heard = [{"step": each["step"], **each["metrics"]} for each in records if each["kind"] == "metrics"]
    assert heard == read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [each["text"] for each in records if each.get("name") == "run.end"] == [{"status": "success"}]
    with pytest.raises(InputError, match="unknown sink 'nowhere'"):
        await run_async("sl_loop", make_config(tmp_path / "other", **settings | {"sinks": "nowhere"}))
    assert not (tmp_path / "other").exists()
