"""Every recipe with a published batch fits it to little data, in the plan and in the run; a resume has the same."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.assets import resolve_model
from cookhouse.errors import InputError
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio
MODEL = resolve_model("cookhouse/tiny")
"""By its folder it is a model as any other, with published defaults."""
ALONE: dict[str, Any] = {"model_name": MODEL, "num_eval": 0, "num_samples": 0, "save_every": 1, "view": False}


def written(path: Path, row: Any, count: int = 12) -> str:
    path.write_text("".join(json.dumps(row(n)) + "\n" for n in range(1, count + 1)))
    return str(path)


def said(n: int) -> Any:
    return {"messages": [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"It is {n}."}]}


def pair(n: int) -> Any:
    return {"prompt": f"Say {n}.", "chosen": f"It is {n}.", "rejected": f"Go away {n}."}


def problem(n: int) -> Any:
    return {"question": f"Compute {n} + 1.", "answer": f"#### {n + 1}"}


@pytest.mark.parametrize(
    ("recipe", "row", "published", "steps"),
    [
        ("supervised", said, 128, 3),
        ("chat_sl", said, 256, 3),
        ("sl_loop", said, 128, 3),
        ("dpo", pair, 256, 3),
        ("preference_model", pair, 256, 6),
        ("off_policy_distillation", problem, 128, 3),
        ("rl_basic", problem, 128, 3),
        ("math_rl", problem, 100, 3),
        ("rl", problem, 32, 3),
        ("rl_loop", problem, 128, 3),
    ],
)
async def test_the_plan_has_the_batch_that_fits(
    recipe: str, row: Any, published: int, steps: int, tmp_path: Path
) -> None:
    config = {"model_name": MODEL, "dataset_path": written(tmp_path / "rows.jsonl", row)}
    config["log_path"] = str(tmp_path / "run")
    if recipe == "off_policy_distillation":
        config["teacher_model"] = MODEL
    if recipe in ("rl", "rl_basic", "math_rl"):
        config["test_path"] = written(tmp_path / "test.jsonl", lambda n: problem(n + 50), 2)
    ports = Adapters(service=FakeService().connect)  # whose models no engine is asked about
    plan = await asyncio.to_thread(dry_run, recipe, config, adapters=ports)
    assert plan.config["batch_size"] == 4
    assert plan.facts["steps"].startswith(f"{steps} in all")
    assert any(
        note.startswith(f"batch_size is 4: the published {published} ") and note.endswith(f"batch_size={published}")
        for note in plan.notes
    )
    assert f"batch_size {published}" not in plan.facts.get("defaults", ""), "nor does it say another"


async def test_a_resume_has_the_batch_that_the_data_decided(tmp_path: Path) -> None:
    """Catches a run that cannot be gone on with by the config that it was started with, and one that goes on with the
    published batch.
    """
    make: Any = SupervisedConfig
    data = {"dataset_path": written(tmp_path / "rows.jsonl", said), "log_path": str(tmp_path / "run")}
    service = FakeService()
    ports = Adapters(service=service.connect, sinks=[])
    first = await run_async("supervised", make(**ALONE, **data, pause_at_step=1), adapters=ports)
    assert (first.summary.num_steps, first.summary.total_steps) == (1, 3)
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (record["config"]["batch_size"], record["origins"]["batch_size"]) == (4, "by the data")
    more = {**ALONE, **data, "behavior_if_log_dir_exists": "resume"}
    with pytest.raises(InputError, match=r"batch_size=128, but the run in .* was started with 4"):
        await run_async("supervised", make(**more, batch_size=128), adapters=ports)
    again = await run_async("supervised", make(**more, pause_at_step=2), adapters=ports)
    assert again.summary.num_steps == 2
    named = {"log_path": str(tmp_path / "run"), "behavior_if_log_dir_exists": "resume"}
    last = await run_async("supervised", named, adapters=ports)
    assert (last.summary.num_steps, last.summary.total_steps) == (3, 3)
