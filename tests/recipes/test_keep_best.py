"""The best weights of a run by a held-out metric, kept, and a run that ends when there have been none for a while."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.cli import main
from cookhouse.cli.models.registering import model_by_hand
from cookhouse.errors import InputError, ServiceError
from cookhouse.recipes import RECIPES, config_fields, dry_run, find_recipe, run, run_async, sweep
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.registry.noop import NoopRegistry
from cookhouse.runs import RunStatus, read_history, read_record
from cookhouse.telemetry import find_metric, read_metrics
from cookhouse.training import FakeSamplingClient, FakeService, Interrupt
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile
from cookhouse.weights.names import find_weights

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]
EVERY_STEP = {"eval_every": 1, "save_every": 0, "num_eval": 0, "keep_best": "test/nll"}


class Scripted:
    """An evaluator that says of the k-th weights that it sees the k-th value, and the same whenever it sees them."""

    def __init__(self, *values: float, name: str = "nll") -> None:
        self._values = values
        self._name = name
        self.thetas: list[Any] = []

    def __call__(self, settings: Any, renderer: Any) -> Any:
        del settings, renderer
        return self._measure

    async def _measure(self, client: Any) -> dict[str, float]:
        assert isinstance(client, FakeSamplingClient)
        known = next((k for k, theta in enumerate(self.thetas) if np.array_equal(theta, client._theta)), None)
        if known is None:
            self.thetas.append(client._theta)
        return {self._name: self._values[len(self.thetas) - 1 if known is None else known]}


def adapters(service: FakeService, scripted: Scripted, **more: Any) -> Adapters:
    return Adapters(service=service.connect, evaluators={"scripted": scripted}, **more)


def saved(folder: Path) -> list[Checkpoint]:
    return CheckpointFile(folder / "checkpoints.jsonl").read()


def told(folder: Path) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """What a run left, but for times and for paths, which a resumed one has of two sessions."""
    rows = [
        {k: v for k, v in row.items() if not k.startswith("time/")} for row in read_metrics(folder / "metrics.jsonl")
    ]
    return rows, [(each.name, each.step, each.final, dict(each.best)) for each in saved(folder)]


async def test_the_metric_is_written_whichever_it_is(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a choice of metrics that leaves out by which one the best weights are told, also after a resume."""
    service, scripted = FakeService(), Scripted(1.0, 3.0, 2.0, name="env/sums/format")
    config = make_config(**{**EVERY_STEP, "keep_best": "test/env/sums/format", "max_steps": 2})
    await run_async("supervised", config, adapters=adapters(service, scripted))
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["test/env/sums/format"] for row in rows] == [1.0, 3.0, 2.0]


async def test_the_weights_of_exactly_the_best_step_are_kept(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches weights that are a step on by the time of the save, and earlier bests that are kept, too."""
    service, scripted = FakeService(), Scripted(5.0, 4.0, 3.0, 1.0, 2.0, 1.5, 1.25)
    run = await run_async("supervised", make_config(**EVERY_STEP), adapters=adapters(service, scripted))
    best, final = saved(tmp_path / "run")
    assert (best.name, best.step, best.best, final.name, final.best) == (
        "000003-best",
        3,
        {"test/nll": 1.0},
        "final",
        {},
    )
    assert best.state_path is not None
    assert best.sampler_path is not None
    for path in (best.state_path, best.sampler_path):
        assert np.array_equal(service.states[path].theta, scripted.thetas[3])
    paths = {path for each in (best, final) for path in (each.state_path, each.sampler_path)}
    assert set(service.states) == paths
    assert (run.summary.sampler_path, run.summary.best) == (
        best.sampler_path,
        "000003-best: held-out loss 1 after step 3",
    )
    assert find_weights(str(tmp_path / "run")).path("training") == best.state_path
    assert read_record(tmp_path / "run").best == best


async def test_last_weights_that_are_the_best_are_kept_once(make_config: MakeConfig, tmp_path: Path) -> None:
    service = FakeService()
    await run_async("supervised", make_config(**EVERY_STEP), adapters=adapters(service, Scripted(*range(9, 2, -1))))
    [final] = saved(tmp_path / "run")
    assert (final.final, final.best) == (True, {"test/nll": 3})
    assert set(service.states) == {final.state_path, final.sampler_path}


async def test_periodic_checkpoints_stay_and_training_is_the_same(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches an evaluation that is waited for and changes what is trained."""
    values = (5.0, 1.0, 3.0, 4.0, 2.0, 6.0, 7.0)
    for name, settings in (("kept", EVERY_STEP), ("plain", {**EVERY_STEP, "keep_best": None})):
        config = make_config(**{**settings, "save_every": 2, "log_path": str(tmp_path / name)})
        await run_async("supervised", config, adapters=adapters(FakeService(), Scripted(*values)))
    (kept, points), (plain, plain_points) = told(tmp_path / "kept"), told(tmp_path / "plain")
    assert kept == plain
    assert [name for name, *_ in points] == ["000001-best", "000002", "000004", "final"]
    assert [name for name, *_ in plain_points] == ["000002", "000004", "final"]


async def test_patience_ends_the_run_as_finished(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a run that ends a step too late, since the next was under way, and one that counts as interrupted."""
    events, registry = Events(), NoopRegistry()
    config = make_config(**EVERY_STEP, early_stopping_patience=2, registered_model_name="mine")
    scripted = Scripted(5.0, 4.0, 4.5, 3.0, 3.25, math.nan, 1.0)
    run = await run_async(
        "supervised", config, adapters=adapters(FakeService(), scripted, sinks=[events], registry=registry)
    )
    summary, folder = run.summary, tmp_path / "run"
    assert (summary.num_steps, summary.total_steps, summary.is_interrupted) == (5, 6, False)
    reason = "stopped early: 2 evaluations in a row had no better test/nll than 3 after step 3"
    assert summary.stopped == reason
    assert read_history(folder).status is RunStatus.FINISHED
    assert read_record(folder).facts["state"] == f"finished: {reason}"
    assert [row["step"] for row in read_metrics(folder / "metrics.jsonl")] == [0, 1, 2, 3, 4, 5]
    assert len(scripted.thetas) == 6
    best, final = saved(folder)
    assert (best.step, final.step, final.final) == (3, 5, True)
    model = run.state.registered_model
    assert (model.artifact.path, model.metrics["test/nll"]) == (best.state_path, 3.0)
    assert "training.stopped" in events.names


async def test_an_improvement_below_the_threshold_is_kept_and_does_not_count(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(**EVERY_STEP, early_stopping_patience=2, early_stopping_threshold=0.5)
    scripted = Scripted(5.0, 4.0, 3.75, 3.5, 1.0, 1.0, 1.0)
    run = await run_async("supervised", config, adapters=adapters(FakeService(), scripted))
    assert run.summary.num_steps == 3
    assert [each.step for each in saved(tmp_path / "run") if each.best] == [3]


@pytest.mark.parametrize(
    ("name", "values", "step"),
    [
        ("nll", (math.nan, 9.0, math.inf, 8.0, math.nan, 8.5, 8.5), 3),
        ("accuracy", (0.1, 0.5, 0.9, 0.2, math.inf, 0.8, 0.8), 2),
    ],
)
async def test_what_is_not_finite_is_never_the_best(
    make_config: MakeConfig, tmp_path: Path, name: str, values: Sequence[float], step: int
) -> None:
    """Catches also a direction that is the same for all metrics."""
    config = make_config(**{**EVERY_STEP, "keep_best": f"test/{name}"})
    await run_async("supervised", config, adapters=adapters(FakeService(), Scripted(*values, name=name)))
    assert [each.step for each in saved(tmp_path / "run") if each.best] == [step]


async def test_of_equals_the_later_are_kept(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches untrained weights that are kept since a metric never left 0; patience counts improvements alone."""
    config = make_config(**{**EVERY_STEP, "keep_best": "test/accuracy"}, early_stopping_patience=4)
    run = await run_async("supervised", config, adapters=adapters(FakeService(), Scripted(*[0.0] * 7, name="accuracy")))
    assert run.summary.num_steps == 4
    [final] = saved(tmp_path / "run")
    assert (final.final, final.step, final.best) == (True, 4, {"test/accuracy": 0.0})


def test_the_best_is_named_wherever_a_run_is_told_of(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a person who has to look for it in a file."""
    scripted = Scripted(5.0, 4.0, 3.0, 1.0, 2.0, 1.5, 1.25)
    events = Events()
    run("supervised", make_config(**EVERY_STEP), adapters=adapters(FakeService(), scripted, sinks=[events]))
    folder = tmp_path / "run"

    def printed(*words: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main([*words])
        return capsys.readouterr().out

    words = "held-out loss 1 after step 3"
    assert words in printed("runs", "--under", str(tmp_path))
    assert f"best         000003-best: {words}" in printed("runs", "show", str(folder))
    assert f"the best: {words}" in printed("checkpoints", "list", str(folder))
    assert json.loads(printed("runs", "--under", str(tmp_path), "--json"))[0]["best"]["step"] == 3
    page = (folder / "report.html").read_text()
    assert words in page
    assert re.search(r"000003-best</th>\s*<td>3</td>\s*<td>best", page)
    registered = model_by_hand(
        NoopRegistry(),
        "mine",
        str(folder),
        run=None,
        base_model=None,
        parent=None,
        descent="fine_tuned_from",
        metrics=[],
    )
    assert (registered.artifact.path, registered.metrics["test/nll"]) == (saved(folder)[0].state_path, 1.0)


def test_a_sweep_compares_and_registers_the_best_of_each_run(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches runs that are compared by their last weights, while their names mean the best."""
    config = make_config(**EVERY_STEP)
    names = ("dataset_path", "test_path", "batch_size", "num_epochs", *EVERY_STEP)
    settings = {name: getattr(config, name) for name in names}
    scripted = Scripted(5.0, 1.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0, 3.0, 2.0, 2.5, 2.5, 2.5, 2.25)
    registry, folder = NoopRegistry(), tmp_path / "sweep"
    result = sweep(
        "supervised",
        {**settings, "log_path": str(folder), "registered_model_name": "mine"},
        grid={"seed": [0, 1]},
        metric="test/nll",
        adapters=adapters(FakeService(), scripted, sinks=[], registry=registry),
    )
    rows = result.state.record.table.rows
    assert [(row.value, row.is_best) for row in rows] == [(1.0, True), (2.0, False)]
    model = registry.get("mine@1")
    assert model.artifact.path == saved(folder / rows[0].name)[0].state_path
    assert model.metrics["test/nll"] == 1.0


BREAKS = [
    *(("forward_backward", number) for number in (1, 2, 4)),
    *(("save_state", number) for number in (0, 2, 3)),
    *(("save_sampler", number) for number in (2,)),
    *(("snapshot", number) for number in (0, 5, 6)),
]


async def test_a_best_that_a_kill_left_beside_a_better_one_goes(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a run that dies between recording the better weights and letting the others go, and weights that are
    saved again where the resumed run measures them again.
    """
    values, settings = (5.0, 4.0, 3.0, 3.5, 3.5, 3.5, 3.5), {**EVERY_STEP}

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == ("forward_backward", 3):
            raise ServiceError("gone")

    service, scripted = FakeService(gate=gate), Scripted(*values)
    with contextlib.suppress(ServiceError):
        await run_async("supervised", make_config(**settings), adapters=adapters(service, scripted))
    [best] = saved(tmp_path / "run")
    left = replace(best, step=1, name="000001-best", state_path="tinker://left/1", sampler_path=None)
    service.states["tinker://left/1"] = service.states[str(best.state_path)]
    (tmp_path / "run" / "checkpoints.jsonl").write_text(f"{left.line}\n{best.line}\n")
    assert find_weights(str(tmp_path / "run")).path("sampling") == best.sampler_path
    later = FakeService(states=service.states)
    config = make_config(**settings, behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=adapters(later, scripted))
    kept, final = saved(tmp_path / "run")
    assert (kept, final.name) == (best, "final")
    assert "tinker://left/1" not in service.states


async def test_a_run_that_has_stopped_is_not_trained_on(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a resume between the last save and the end which goes on, since an evaluation came out otherwise."""
    settings = {**EVERY_STEP, "early_stopping_patience": 1}

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == ("snapshot", 3):  # of the last evaluation
            raise ServiceError("gone")

    service = FakeService(gate=gate)
    with contextlib.suppress(ServiceError):
        await run_async("supervised", make_config(**settings), adapters=adapters(service, Scripted(5.0, 4.0, 4.5)))
    assert [each.name for each in saved(tmp_path / "run")] == ["000001-best", "final"]
    later = FakeService(states=service.states)
    config = make_config(**settings, behavior_if_log_dir_exists="resume")
    result = await run_async("supervised", config, adapters=adapters(later, Scripted(3.0, 2.0)))
    assert result.summary.num_steps == 2
    assert "forward_backward" not in {call.kind for call in later.calls}


@pytest.mark.parametrize("way", ["killed", "interrupted"])
@pytest.mark.parametrize(("kind", "number"), BREAKS)
async def test_a_resumed_run_ends_as_an_undisturbed_one(
    make_config: MakeConfig, tmp_path: Path, way: str, kind: str, number: int
) -> None:
    """Catches a best, or a count of evaluations, that is forgotten, and rows that a save outran."""
    values, settings = (5.0, 4.0, 4.5, 3.0, 3.5, 3.25, 1.0), {**EVERY_STEP, "early_stopping_patience": 2}
    scripted, whole = Scripted(*values), tmp_path / "whole"
    plain = make_config(**settings, log_path=str(whole))
    await run_async("supervised", plain, adapters=adapters(FakeService(), scripted))

    interrupt = Interrupt()

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == (kind, number):
            if way == "killed":
                raise ServiceError("gone")
            interrupt.request()

    service = FakeService(gate=gate)
    with contextlib.suppress(ServiceError, KeyboardInterrupt):  # the latter while the last weights are saved
        await run_async(
            "supervised", make_config(**settings), adapters=adapters(service, scripted), interrupt=interrupt
        )
    config = make_config(**settings, behavior_if_log_dir_exists="resume")
    later = FakeService(states=service.states)
    await run_async("supervised", config, adapters=adapters(later, scripted))
    (rows, points), (whole_rows, whole_points) = told(tmp_path / "run"), told(whole)
    assert rows == whole_rows
    kept = [each for each in points if each[3] or each[2]]
    assert kept == whole_points
    assert len(scripted.thetas) == 6


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"keep_best": "test/nl"}, "unknown metric of keep_best 'test/nl'; did you mean test/nll"),
        ({"keep_best": "train/loss"}, "unknown metric of keep_best 'train/loss'; .*it has to be held out"),
        ({"keep_best": "test/nll", "eval_every": 0}, "keep_best=test/nll would change nothing: .* eval_every above 0"),
        ({"keep_best": None, "early_stopping_patience": 2}, "early_stopping_patience=2 would change nothing"),
        ({"early_stopping_patience": 0}, "early_stopping_patience is 0; it must be at least 1"),
        ({"early_stopping_threshold": 0.5}, "early_stopping_threshold=0.5 would change nothing"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    make_config: MakeConfig, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        dry_run("supervised", make_config(**{**EVERY_STEP, **settings}))


@pytest.mark.parametrize(
    ("settings", "evaluator", "reason"),
    [
        ({"keep_best": "test/accuracy"}, Scripted(1.0), "unknown metric of keep_best 'test/accuracy'; .*test/nll"),
        ({"keep_best": "auto"}, Scripted(1.0, name="mine"), "nothing that this run measures"),
        ({}, lambda *_: None, "nothing held out is measured as the run goes on"),
    ],
)
async def test_what_is_not_measured_is_refused_before_the_first_step(
    make_config: MakeConfig, tmp_path: Path, settings: dict[str, Any], evaluator: Any, reason: str
) -> None:
    service = FakeService()
    with pytest.raises(InputError, match=reason):
        await run_async("supervised", make_config(**{**EVERY_STEP, **settings}), adapters=adapters(service, evaluator))
    assert "forward_backward" not in {call.kind for call in service.calls}
    assert service.states == {}
    assert not (tmp_path / "run").exists()


TRAINING = sorted(set(RECIPES.names()) - {"eval", "sl_loop", "rl_loop"})
QUICK = (
    *("supervised", "dpo", "preference_model", "rl_basic", "preference_rl"),
    *("off_policy_distillation", "on_policy_distillation", "rlhf"),
)
"""One of each workflow."""


def test_every_recipe_that_trains_has_it() -> None:
    names = {"keep_best", "early_stopping_patience", "early_stopping_threshold"}
    assert all(names <= {field.name for field in config_fields(find_recipe(recipe))} for recipe in TRAINING)


@pytest.mark.parametrize("recipe", QUICK)
async def test_every_workflow_keeps_its_best(recipe: str, tmp_path: Path) -> None:
    """Catches a recipe that has the settings and does not heed them, or whose `auto` finds nothing to go by."""
    quick: dict[str, Any] = {
        "max_steps": 3,
        "batch_size": 4,
        "group_size": 4,
        "num_eval": 4,
        "max_tokens": 16,
        "num_turns": 2,
    }
    best = {"keep_best": "auto", "eval_every": 1, "save_every": 0}
    if recipe == "preference_rl":
        quick["preference_model"] = "cookhouse/tiny"
    known = {field.name for field in config_fields(find_recipe(recipe))}
    settings = {name: value for name, value in {**quick, **best}.items() if name in known}
    run = await run_async(recipe, {**settings, "log_path": str(tmp_path / "run")}, adapters=Adapters.noop(sinks=[]))
    folders = [file.parent for file in sorted((tmp_path / "run").glob("**/checkpoints.jsonl"))]
    assert len(folders) == (3 if recipe == "rlhf" else 1)
    for folder in folders:
        points = saved(folder)
        [kept] = [each for each in points if each.best]
        [(metric, value)] = kept.best.items()
        measured = [(row[metric], row["step"]) for row in read_metrics(folder / "metrics.jsonl") if metric in row]
        choose = min if find_metric(metric).direction == "less" else max
        top = choose(found for found, _ in measured)
        assert (value, kept.step) == (top, max(step for found, step in measured if found == top))
        assert {each.name for each in points} == {kept.name, "final"}
    assert run.summary.num_steps == 3 * len(folders)
