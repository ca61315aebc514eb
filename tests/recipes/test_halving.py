"""A sweep by successive halving: which runs are promoted, from what, and what becomes of it when it is stopped."""

import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.recipes.run_sweep import NAME
from cookhouse.runs import find_runs, read_history
from cookhouse.service.local import service_folder, stored_files
from cookhouse.sweeps.halving import read_halving
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile

GRID: dict[str, list[Any]] = {"learning_rate": [1e-3, 1e-2, 1e-1], "lora_rank": [8, 16]}
STEPS = 9


@pytest.fixture
def settings(tmp_path: Path, conversations: Callable[..., Path]) -> dict[str, Any]:
    data = {"dataset_path": str(conversations()), "test_path": str(conversations("test.jsonl", 4))}
    small = {"batch_size": 4, "num_epochs": 3, "max_steps": STEPS, "num_samples": 0, "eval_max_tokens": 8}
    return {**data, **small, "log_path": str(tmp_path / "runs" / "sweep")}


def fake(service: FakeService | None = None) -> Adapters:
    return Adapters(service=(service or FakeService()).connect, sinks=[])


def halved(settings: dict[str, Any], service: FakeService | None = None, **how: Any) -> Any:
    plan = {"grid": GRID, "min_steps": 1, "metric": "test/nll", **how}
    return cookhouse.sweep("supervised", settings, adapters=fake(service), **plan)


def table_of(folder: str) -> list[dict[str, str]]:
    with (Path(folder) / "sweep.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def steps_of(service: FakeService) -> int:
    return sum((call.kind, call.phase) == ("optim_step", "submit") for call in service.calls)


def trained(folder: Path) -> list[dict[str, Any]]:
    """Rows of metrics, without times and without what was measured between steps."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "optim/lr" in row]
    return [{name: value for name, value in row.items() if not name.startswith(("time/", "test/"))} for row in rows]


@pytest.mark.parametrize("jobs", [1, 3])
def test_only_the_best_are_promoted_and_nothing_is_trained_twice(settings: dict[str, Any], jobs: int) -> None:
    # Catches a run that begins anew at each rung, one promoted although others are better, and a best that is not.
    service = FakeService()
    result = halved(settings, service, jobs=jobs)
    rows = table_of(settings["log_path"])
    if jobs == 1:
        assert sorted(int(row["steps"]) for row in rows) == [1] * 4 + [3, 9]
    assert steps_of(service) == sum(int(row["steps"]) for row in rows) == result.summary.num_steps
    assert result.summary.total_steps == len(rows) * STEPS
    assert {row["state"] for row in rows} == {"stopped", "finished"}
    best = result.state.record.table.best
    assert best is not None
    assert (best.settings["learning_rate"], best.steps) == (0.1, STEPS)
    assert [row["run"] for row in rows if row["best"] == "1"] == [best.name]
    kept = read_halving(Path(settings["log_path"]))
    assert kept is not None
    assert kept.is_over
    assert kept.rungs == [1, 3, 9]
    assert set(kept.outcomes) == {row["run"] for row in rows}
    for run in find_runs(Path(settings["log_path"])):
        measured = [row["step"] for row in read_metrics(run.path / "metrics.jsonl") if "test/nll" in row]
        assert 0 not in measured, "the weights that all begin with are not measured for each"
        if run.history.status != "finished":
            assert run.history.launches[-1].stopped == f"paused after step {measured[-1]} of 9 (pause_at_step)"
    page = (Path(settings["log_path"]) / "report.html").read_text()
    assert "<td>stopped</td><td>1</td>" in page


@pytest.mark.parametrize(("metric", "is_sampled"), [("test/nll", False), ("test/exact_match", True)])
def test_nothing_is_sampled_at_a_rung_where_the_loss_decides(
    settings: dict[str, Any], metric: str, is_sampled: bool
) -> None:
    # Catches a rung that takes longer to measure than to train, and a score that is not measured where it decides.
    halved(settings, metric=metric)
    for run in find_runs(Path(settings["log_path"])):
        rows = [row for row in read_metrics(run.path / "metrics.jsonl") if "test/nll" in row]
        is_sampled_at = {row["step"]: "test/exact_match" in row for row in rows}
        assert is_sampled_at == {step: is_sampled or step == STEPS for step in is_sampled_at}


@pytest.mark.parametrize("recipe", ["supervised", "dpo", "rl_basic", "on_policy_distillation"])
def test_a_paused_run_ends_as_one_that_was_never_paused(tmp_path: Path, recipe: str) -> None:
    # Catches a learning rate that ends with the rung, data that begins anew, and a recipe that does not hear of it.
    small: dict[str, Any] = {"max_steps": 5, "num_epochs": 5, "num_samples": 0, "num_eval": 4, "lora_rank": 4}
    small |= {"n_train_samples": 16, "lr_schedule": "cosine", "learning_rate": 0.05}
    small |= {"batch_size": 4} if recipe in ("supervised", "dpo") else {"groups_per_batch": 2, "group_size": 2}
    whole = tmp_path / "whole"
    cookhouse.run(recipe, {**small, "log_path": str(whole)}, adapters=fake())
    folder = tmp_path / "paused"
    states: dict[str, Any] = {}
    again: dict[str, Any] = {"log_path": str(folder), "behavior_if_log_dir_exists": "resume"}
    for pause_at in (1, 3):
        paused = cookhouse.run(
            recipe, {**small, **again, "pause_at_step": pause_at}, adapters=fake(FakeService(states=states))
        )
        assert (paused.summary.is_paused, paused.summary.is_interrupted) == (True, True)
        assert (paused.summary.num_steps, paused.summary.stopped) == (pause_at, f"paused: pause_at_step={pause_at}")
    ended = cookhouse.run(recipe, again, adapters=fake(FakeService(states=states)))
    assert (ended.summary.is_paused, ended.summary.num_steps) == (False, 5)
    assert trained(folder) == trained(whole)
    assert json.loads((folder / "config.json").read_text())["config"]["pause_at_step"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "jobs"), [(("optim_step", 3), 1), (("optim_step", 7), 1), (("optim_step", 7), 2)], ids=str
)
def test_an_interrupted_sweep_resumes(settings: dict[str, Any], at: tuple[str, int], jobs: int) -> None:
    # Catches decisions that are lost or made again, and runs that are taken for paused though they were cut off.
    whole = FakeService()
    undisturbed = {**settings, "log_path": settings["log_path"] + "-whole"}
    halved(undisturbed, whole)

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == at:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)  # heard before it is answered

    broken = FakeService(gate=gate)
    result = halved(settings, broken, jobs=jobs)
    assert result.summary.is_interrupted
    assert result.summary.next_command == f"cookhouse runs resume {settings['log_path']}"
    assert read_history(Path(settings["log_path"])).status == "interrupted"
    states = {row["state"] for row in table_of(settings["log_path"])}
    assert "paused" in states
    assert "stopped" not in states
    again = FakeService(states=broken.states)
    result = halved({**settings, "behavior_if_log_dir_exists": "resume"}, again, jobs=jobs)
    assert not result.summary.is_interrupted
    if jobs == 1:
        assert table_of(settings["log_path"]) == table_of(undisturbed["log_path"])
        assert steps_of(broken) + steps_of(again) == steps_of(whole)
    done = FakeService()
    cookhouse.run(NAME, {"log_path": settings["log_path"], "behavior_if_log_dir_exists": "resume"}, adapters=fake(done))
    assert steps_of(done) == 0


@pytest.mark.long
def test_on_the_engine_the_best_has_the_weights_of_a_run_that_was_never_paused(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    # Catches moments, a schedule or a seed that a pause loses, and a kill that makes the sweep decide otherwise.
    words = [f"{name}={value}" for name, value in settings.items() if name != "log_path"]

    def command(*rest: str) -> list[str]:
        return [sys.executable, "-m", "cookhouse", *rest]

    folder, whole = tmp_path / "runs" / "halved", tmp_path / "runs" / "whole"
    how = ["learning_rate=1e-4,1e-3,1e-2", "--min-steps", "1", "--metric", "test/nll", f"log_path={folder}"]
    killed = subprocess.Popen(command("sweep", "supervised", *words, *how), cwd=tmp_path)
    wait_until(lambda: list(folder.glob("2-*/checkpoints.jsonl")) or killed.poll() is not None)
    assert killed.poll() is None
    killed.kill()
    killed.wait()
    again = [*how, "behavior_if_log_dir_exists=resume"]
    done = subprocess.run(
        command("sweep", "supervised", *words, *again), check=True, cwd=tmp_path, capture_output=True, text=True
    )
    rows = table_of(str(folder))
    assert sorted((row["state"], row["steps"]) for row in rows) == [
        ("finished", "9"),
        ("stopped", "1"),
        ("stopped", "1"),
    ]
    [best] = [row for row in rows if row["best"] == "1"]
    assert f"best         {best['run']}, held-out loss" in done.stdout
    assert f"cookhouse sample {folder / best['run']}" in done.stdout
    alone = [f"learning_rate={best['learning_rate']}", f"log_path={whole}"]
    subprocess.run(command("run", "supervised", *words, *alone), check=True, cwd=tmp_path)
    assert trained(folder / best["run"]) == trained(whole)
    assert weights_of(folder / best["run"]) == weights_of(whole)


def weights_of(folder: Path) -> bytes:
    saved = CheckpointFile(folder / "checkpoints.jsonl").read()[-1]
    assert saved.sampler_path is not None
    files = stored_files(service_folder(folder), saved.sampler_path)
    assert files is not None
    return (files / "adapter.safetensors").read_bytes()


def test_one_that_fails_is_left_out(settings: dict[str, Any], tmp_path: Path) -> None:
    settings.pop("dataset_path")
    grid = {"dataset_path": [str(tmp_path / "later.jsonl"), str(tmp_path / "train.jsonl")], "lora_rank": [8, 16]}
    result = halved(settings, grid=grid)
    assert sorted(row["state"] for row in table_of(settings["log_path"])) == ["failed", "failed", "finished", "stopped"]
    assert len(result.state.errors) == 2
    outcomes = result.state.halving.outcomes
    assert all(outcomes[run].startswith("failed before step 1: ") for run in result.state.errors)
    assert len(outcomes) == 4


def test_runs_measured_on_different_data_are_refused_at_the_first_rung(
    settings: dict[str, Any], conversations: Callable[..., Path]
) -> None:
    # Catches a winner among runs that were asked different questions, of which the easiest ones win.
    grid = {"test_path": [settings.pop("test_path"), str(conversations("other.jsonl", 6))], "lora_rank": [8, 16]}
    service = FakeService()
    with pytest.raises(InputError, match=r"the runs were evaluated on different data \(its fingerprints differ\)"):
        halved(settings, service, grid=grid)
    assert steps_of(service) == 3, "as soon as the first of the other data is measured"
    again = {**settings, "behavior_if_log_dir_exists": "resume"}
    with pytest.raises(InputError, match="the runs were evaluated on different data"):
        halved(again, FakeService(states=service.states), grid=grid)


def test_runs_whose_data_ends_early_are_refused(settings: dict[str, Any]) -> None:
    # Catches a rung at which a run with its learning rate at zero is compared with runs in the midst of their training.
    service = FakeService()
    settings.pop("batch_size")
    with pytest.raises(
        InputError, match=r"2-batch_size=12 has data for 3 of the 9 steps.*; raise num_epochs or lower max_steps"
    ):
        halved(settings, service, grid={"batch_size": [4, 12]})
    assert steps_of(service) == 2
    outcome = halved(
        {**settings, "behavior_if_log_dir_exists": "delete", "num_epochs": 9}, grid={"batch_size": [4, 12]}
    )
    assert outcome.state.errors == {}


def scripted(*values: float | None) -> Any:
    """An evaluator of `test/nll` that gives these values, one at each evaluation, and then the last."""
    left = list(values)

    async def measure(client: Any) -> dict[str, float | None]:
        del client
        return {"nll": left.pop(0) if len(left) > 1 else left[0]}

    return lambda settings, renderer: measure  # noqa: ARG005


def halved_by(settings: dict[str, Any], *values: float | None, **how: Any) -> Any:
    evaluators = {"scripted": scripted(*values)}
    adapters = Adapters(service=FakeService().connect, sinks=[], evaluators=evaluators)
    plan = {"min_steps": 2, "metric": "test/nll", "grid": {"lora_rank": [8, 16]}, **how}
    unasked = {name: value for name, value in settings.items() if name != "eval_max_tokens"}
    return cookhouse.sweep("supervised", {**unasked, "num_eval": 0}, adapters=adapters, **plan)


def test_best_weights_of_an_earlier_step_do_not_count_at_a_rung(settings: dict[str, Any]) -> None:
    # Catches a run promoted for what it was before it got worse, over one that is better after as many steps.
    settings |= {"keep_best": "test/nll", "eval_every": 1, "max_steps": 4, "test_path": None}
    result = halved_by(settings, 1.0, 9.0, 5.0, 5.0, 4.0, 6.0)
    kept = result.state.halving
    assert [(each.step, each.value) for each in kept.measured] == [(2, 9.0), (2, 5.0), (4, 4.0)]
    assert [each.run for each in kept.promotions] == ["2-lora_rank=16"]
    [best] = [row for row in table_of(settings["log_path"]) if row["best"] == "1"]
    assert (best["run"], best["test/nll"]) == ("2-lora_rank=16", "4.0"), "of a run that has finished, they do"


def test_a_run_that_does_not_measure_the_metric_has_failed(settings: dict[str, Any]) -> None:
    # Catches one that is told as diverged, and stopped by its rank, although nobody measured it.
    result = halved_by({**settings, "max_steps": 4, "test_path": None}, 5.0, None, 5.0)
    failed = "2-lora_rank=16"
    assert result.state.errors == {failed: "it did not measure test/nll after step 2"}
    kept = result.state.halving
    assert kept.outcomes == {
        "1-lora_rank=8": "finished after step 4",
        failed: "failed before step 2: it did not measure test/nll after step 2",
    }
    assert [row["state"] for row in table_of(settings["log_path"])] == ["finished", "failed"]


def test_a_metric_that_no_run_has_is_refused_after_the_first(settings: dict[str, Any]) -> None:
    # Catches a sweep that finds out at its end that it compared nothing.
    service = FakeService()
    with pytest.raises(
        InputError, match=r"the runs do not measure test/nl; they measure test/exact_match, test/nll, .*train/loss"
    ):
        halved(settings, service, metric="test/nl")
    assert steps_of(service) == 1
    with pytest.raises(InputError, match="train/num_tokens has no direction; set direction=less"):
        halved({**settings, "behavior_if_log_dir_exists": "delete"}, metric="train/num_tokens")


def test_without_a_metric_it_is_the_held_out_loss(settings: dict[str, Any]) -> None:
    result = halved(settings, metric=None)
    metric = result.state.record.table.metric
    assert metric is not None
    assert (metric.name, result.state.record.table.way) == ("test/nll", "less")


@pytest.mark.parametrize(
    ("changes", "how", "message"),
    [
        ({"max_steps": None}, {}, "with min_steps, every run has the same max_steps; set it once"),
        ({}, {"min_steps": 9}, "min_steps is 9; it must be below max_steps, which is 9"),
        ({}, {"min_steps": None, "reduction_factor": 2}, "reduction_factor=2 would change nothing"),
        ({}, {"reduction_factor": 1}, "reduction_factor is 1; it must be at least 2"),
        ({"pause_at_step": 2}, {}, "remove pause_at_step: min_steps sets it"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    settings: dict[str, Any], changes: dict[str, Any], how: dict[str, Any], message: str
) -> None:
    service = FakeService()
    with pytest.raises(InputError, match=message):
        halved({**settings, **changes}, service, **how)
    assert service.calls == []
    with pytest.raises(InputError, match="a run of sl_loop cannot be paused"):
        cookhouse.sweep("sl_loop", {}, grid={"learning_rate": [1e-3, 1e-2]}, min_steps=1, adapters=fake(service))
