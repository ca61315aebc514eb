"""Runs in order as one: killed between or within its children, and resumed, it gives the bits of an undisturbed one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.errors import ServiceError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import Recipe, dry_run, pipeline_recipe, run_async
from cookhouse.runs import find_runs, read_history
from cookhouse.settings import RunSettings
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService, Interrupt
from cookhouse.workflows import ChildRun

pytestmark = pytest.mark.anyio


@chz.chz
class Config(RunSettings):
    folder: str = chz.field(doc="Where the data is.")


def two_runs(config: Config) -> Sequence[ChildRun]:
    def first(folders: Mapping[str, Path]) -> Mapping[str, Any]:
        del folders
        data = {"dataset_path": f"{config.folder}/sl.jsonl", "batch_size": 2, "max_steps": 4, "num_eval": 0}
        return {**data, "learning_rate": 0.3, "save_every": 2}

    def second(folders: Mapping[str, Path]) -> Mapping[str, Any]:
        data = {"dataset_path": f"{config.folder}/rl.jsonl", "test_path": f"{config.folder}/rl.jsonl", "num_eval": 0}
        size = {"batch_size": 2, "group_size": 3, "max_steps": 4, "learning_rate": 0.3, "save_every": 2}
        return {**data, **size, "load_checkpoint_path": str(folders["sl"])}

    return [
        ChildRun(name="sl", recipe="supervised", settings=first),
        ChildRun(name="rl", recipe="rl_basic", settings=second),
    ]


PIPELINE: Recipe[Config] = pipeline_recipe(
    name="two", description="Conversations, then reward.", config_class=Config, runs=two_runs
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = {
        "sl": [{"prompt": f"say {n}", "completion": f"{n}"} for n in range(8)],
        "rl": [{"question": f"Compute {n} + 1.", "answer": str(n + 1)} for n in range(8)],
    }
    for name, some in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return tmp_path


def digit(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    del theta, prompt_T
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(f" {chance.integers(4)}\n", add_special_tokens=False)
    return answer


def losses(folder: Path) -> dict[str, list[float]]:
    rows = {name: read_metrics(folder / name / "metrics.jsonl") for name in ("sl", "rl")}
    return {
        "sl": [row["train/loss"] for row in rows["sl"]],
        "rl": [row["optim/policy_loss"] for row in rows["rl"] if "optim/policy_loss" in row],
    }


async def run_whole(data: Path) -> Path:
    config = {"folder": str(data), "log_path": str(data / "whole")}
    result = await run_async(PIPELINE, config, adapters=Adapters(service=FakeService(answer=digit).connect, sinks=[]))
    assert list(result.state.results) == ["sl", "rl"]
    assert result.artifacts["rl/sampler_path"]
    assert result.summary.num_steps == 8
    return data / "whole"


@pytest.mark.parametrize("number", [1, 3, 5])
async def test_a_pipeline_ends_at_a_step_and_goes_on(data: Path, number: int) -> None:
    """Catches a child that ends and a next one that begins, and a pipeline that counts as finished by it."""
    interrupt = Interrupt()

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == ("optim_step", number):
            interrupt.end("the time is over")

    config: dict[str, Any] = {"folder": str(data), "log_path": str(data / "run"), "max_minutes": 600}
    service = FakeService(answer=digit, gate=gate)
    ended = await run_async(PIPELINE, config, adapters=Adapters(service=service.connect, sinks=[]), interrupt=interrupt)
    assert (ended.summary.is_interrupted, ended.summary.stopped) == (True, "the time is over")
    assert "behavior_if_log_dir_exists=resume" in ended.summary.next_command
    again = FakeService(states=service.states, answer=digit)
    config["behavior_if_log_dir_exists"] = "resume"
    done = await run_async(PIPELINE, config, adapters=Adapters(service=again.connect, sinks=[]))
    assert not done.summary.is_interrupted
    assert losses(data / "run") == losses(await run_whole(data))


@pytest.mark.parametrize(
    ("kind", "number", "num_left"),
    [("forward_backward", 1, 8), ("forward_backward", 3, 6), ("load_weights", 0, 4), ("forward_backward", 6, 2)],
)
async def test_killed_anywhere_it_goes_on_to_the_same_bits(data: Path, kind: str, number: int, num_left: int) -> None:
    # Catches a child that is run again after it finished, starts from the base model, or begins anew.
    whole = losses(await run_whole(data))
    assert [len(values) for values in whole.values()] == [4, 4]

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == (kind, number):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    config = {"folder": str(data), "log_path": str(data / "run")}
    broken = FakeService(answer=digit, gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await run_async(PIPELINE, config, adapters=Adapters(service=broken.connect, sinks=[]))
    history = read_history(data / "run")
    assert history.status == "failed"
    assert "killed" in str(history.error)
    again = FakeService(states=broken.states, answer=digit)
    config["behavior_if_log_dir_exists"] = "resume"
    await run_async(PIPELINE, config, adapters=Adapters(service=again.connect, sinks=[]))
    assert losses(data / "run") == whole
    assert sum((call.kind, call.phase) == ("forward_backward", "submit") for call in again.calls) == num_left

    found = {run.name: (run.parent, run.history.status) for run in find_runs(data) if run.name.startswith("run")}
    assert found == {
        "run": (None, "finished"),
        "run/sl": ("run", "finished"),
        "run/rl": ("run", "finished"),
    }
    third = FakeService(states=again.states, answer=digit)
    await run_async(PIPELINE, config, adapters=Adapters(service=third.connect, sinks=[]))
    assert third.calls == [], "nothing is left to do"


def test_a_dry_run_makes_nothing_and_names_its_runs(data: Path) -> None:
    before = sorted(data.iterdir())
    plan = dry_run(PIPELINE, {"folder": str(data), "log_path": str(data / "run")})
    assert plan.facts == {"sl": "supervised", "rl": "rl_basic"}
    assert sorted(data.iterdir()) == before
    assert "├── runs\n│   ├── sl\n│   └── rl" in PIPELINE.workflow(Config(folder=str(data))).describe()
