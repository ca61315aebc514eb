"""Every setting of every recipe changes something: the plan, what a short run asks and leaves, or it is refused.

Settings that recipes share are tried once: those of one class, read under the same conditions.
"""

import importlib.util
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.errors import CookhouseError
from cookhouse.recipes import Recipe, dry_run, every_recipe, run
from cookhouse.settings import SupervisedSettings
from cookhouse.settings.reading import read_conditions
from cookhouse.telemetry import Event, Record
from cookhouse.training.clients import fake
from cookhouse.workflows import supervised_workflow

SMALL: dict[str, Any] = {
    "max_steps": 2,
    "batch_size": 2,
    "group_size": 2,
    "num_eval": 2,
    "num_samples": 1,
    "lora_rank": 4,
    "max_tokens": 8,
    "num_turns": 2,
    "limit": 2,
    "n_train_samples": 8,
}
"""What every run here begins with, as far as its recipe has it."""
LIBRARIES = {"verifiers_rl": "verifiers", "textarena_rl": "textarena"}
VALUES: dict[str, Any] = {
    "num_epochs": 3,
    "save_every": 1,
    "rolling_save_every": 1,
    "pause_at_step": 1,
    "num_shown_examples": 0,
    "max_minutes": 1e-9,
    "max_length": 8,
    "num_turns": 1,
    "num_minibatches": 2,
}
"""Another value than the next one, with which a run of this size comes to where the setting is read."""
BESIDE: dict[str, dict[str, Any]] = {
    "ties": {"dataset_path": "ties.jsonl"},
    "on_bad_row": {"dataset_path": "bad.jsonl"},
    "empty_answers": {"dataset_path": "empty.jsonl"},
    "overlong_answers": {"max_tokens": 1},
    "tournament": {"group_size": 4},
}
"""Settings beside it, without which a run of this size does not come to where it is read."""
ELSEWHERE = {
    "log_path": "each run here has a folder of its own",
    "behavior_if_log_dir_exists": "it does not exist here: tests/recipes/test_config.py",
    "view": "a page would be served: tests/recipes/test_view.py",
    "metrics": "of a supervised step it leaves out a time: tests/telemetry/test_main_metrics.py",
    "wandb_project": "W&B would be started: tests/telemetry/sinks/test_runs.py",
    "on_failed_group": "no rollout fails here: tests/recipes/test_rl_requests.py",
    "rollout_attempts": "as above",
    "min_group_members": "as above",
    "code_reward": "no answer that is made up passes a test: tests/envs/problems",
    "test_seconds": "as above",
    "max_concurrent_groups": "what is asked is the same: tests/algorithms/rollouts/test_source.py",
    "max_concurrent_requests": "as above: tests/workflows/evaluation/test_workflow.py",
    "max_concurrent_comparisons": "as above: tests/grading/test_preference_model.py",
}
"""Settings that are tried elsewhere, each with why."""
SPIED = {
    fake.FakeService: (
        *("create_lora_training_client", "create_training_client_from_state", "create_sampling_client"),
        *("create_training_client_from_state_with_optimizer", "context_tokens", "delete_checkpoint"),
    ),
    fake.FakeTrainingClient: (
        *("forward", "forward_backward", "forward_backward_custom", "optim_step", "save_state"),
        *("save_weights_for_sampler", "save_weights_and_get_sampling_client"),
    ),
    fake.FakeSamplingClient: ("sample", "compute_logprobs"),
}


def others(field_type: Any, value: Any) -> list[Any]:
    """Other values of a setting's type."""
    if typing.get_origin(field_type) is typing.Literal:
        return [choice for choice in typing.get_args(field_type) if choice not in (value, "auto")]
    known: dict[Any, list[Any]] = {
        bool: [not value],
        int: [value + 1 if isinstance(value, int) else 3],
        float: [value / 2 if isinstance(value, float) and value else 0.25],
        str: ["some"],
    }
    if field_type in known:
        return known[field_type]
    return [each for part in typing.get_args(field_type) for each in others(part, value)]


def plain(value: Any) -> Any:
    """What was asked, to be compared."""
    if isinstance(value, tinker.Datum):
        inputs = {name: tensor.to_numpy().tolist() for name, tensor in value.loss_fn_inputs.items()}
        return plain(value.model_input), sorted(inputs.items())
    if isinstance(value, tinker.ModelInput):
        return value.to_ints()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return "function" if callable(value) else repr(value)


class Said:
    """A sink that keeps what a run says, but for times and sizes."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def write(self, record: Record) -> None:
        if isinstance(record, Event):
            told = {**record.metrics, **record.text}
            kept = {name: value for name, value in told.items() if "second" not in name and "byte" not in name}
            self.all.append(repr((record.name, record.step, sorted(kept.items()))))

    def close(self) -> None: ...


@dataclass(frozen=True)
class Trial:
    """Plans and runs a recipe on no-ops, and tells what came of it, but for the settings themselves."""

    recipe: Recipe[Any]
    folder: Path
    calls: list[str]
    chdir: Callable[[Path], None]

    def adapters(self, sinks: list[Any]) -> Adapters:
        """In an evaluation the model answers, not the completer: that renders nothing."""
        made = Adapters.noop(sinks=sinks)
        return replace(made, completer=None if self.recipe.name == "eval" else self._opened(made.completer))

    def _opened(self, completer: Any) -> Any:
        def opened(name: str) -> Any:
            self.calls.append(repr(("completer", name)))
            return completer(name)

        return opened

    def plan(self, settings: Mapping[str, Any]) -> Any:
        self.chdir(self.folder)
        plan = dry_run(self.recipe, {"log_path": "run", **settings}, adapters=self.adapters([]))
        return dict(plan.facts), [*plan.notes], repr(plan.previews)

    def run(self, settings: Mapping[str, Any]) -> Any:
        place = self.folder / f"{len([*self.folder.iterdir()])}"
        place.mkdir()
        self.chdir(place)
        self.calls.clear()
        said = Said()
        result = run(self.recipe, {"log_path": "run", **settings}, adapters=self.adapters([said]))
        files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        told = repr((result.summary.samples, result.summary.figures))
        # Requests that are under way together come in any order.
        return sorted(self.calls), sorted(said.all), files, told


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the no-op service is asked."""
    asked: list[str] = []

    def spy(name: str, function: Any) -> Any:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            asked.append(repr((name, plain(arguments), plain(sorted(named.items())))))
            return function(self, *arguments, **named)

        return call

    for kind, names in SPIED.items():
        for name in names:
            monkeypatch.setattr(kind, name, spy(name, getattr(kind, name)))
    return asked


def asked_once() -> dict[str, list[str]]:
    """Settings of each recipe that none before it has, of the same class and read under the same conditions."""
    known: set[Any] = set()
    found: dict[str, list[str]] = {}
    for recipe in every_recipe():
        specs = [spec for spec in recipe.config_class.__mro__ if chz.is_chz(spec)]
        for name in chz.chz_fields(recipe.config_class):
            root = [spec for spec in specs if name in chz.chz_fields(spec)][-1]
            key = (name, root, tuple(read_conditions(recipe.config_class, name)))
            if key not in known and name not in ELSEWHERE:
                found.setdefault(str(recipe.name), []).append(name)
            known.add(key)
    return found


OWN = asked_once()


@pytest.mark.parametrize(
    "recipe", [each for each in every_recipe() if each.name in OWN], ids=lambda each: str(each.name)
)
def test_every_setting_changes_something_or_is_refused(
    recipe: Any, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a setting that is accepted and recorded, and nothing comes of it: not in the plan, and not in what a run
    asks, says and leaves.
    """
    if (library := LIBRARIES.get(recipe.name)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    fields = chz.chz_fields(recipe.config_class)
    small = {name: value for name, value in SMALL.items() if name in fields}
    if recipe.name == "preference_rl":
        small["preference_model"] = "cookhouse/tiny"
    tied = {"prompt": "say a", "completion_A": "a", "completion_B": "b"}
    rows = [{**tied, "prompt": f"say {n}", "label": "Tie" if n else "A"} for n in range(6)]
    (tmp_path / "ties.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    good = [{"prompt": f"say {n}", "completion": str(n), "chosen": str(n), "rejected": "no"} for n in range(6)]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*good, {"nothing": 1}]))
    (tmp_path / "empty.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*good, {**good[0], "completion": ""}])
    )
    trial = Trial(recipe, tmp_path, calls, monkeypatch.chdir)
    before = cache(lambda beside: outcome(trial, {**small, **dict(beside)}))
    idle = []
    for name in OWN[recipe.name]:
        beside = {
            key: str(tmp_path / value) if key == "dataset_path" else value
            for key, value in BESIDE.get(name, {}).items()
        }
        begun = {**small, **beside}
        value = begun.get(name, getattr(recipe.config_class(), name))
        for other in [VALUES[name]] if name in VALUES else others(fields[name].x_type, value):
            if not differs(trial, {**begun, name: other}, before(tuple(beside.items()))):
                idle.append((name, other))
    assert idle == []


def outcome(trial: Trial, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The plan, and what came of a run; or what either was refused with."""
    found = []
    for way in (trial.plan, trial.run):
        try:
            found.append(way(settings))
        except CookhouseError as error:
            return str(error), None
    return found[0], found[1]


def differs(trial: Trial, settings: Mapping[str, Any], before: tuple[Any, Any]) -> bool:
    """Whether anything is another than before: a run is asked only where the plan is the same."""
    try:
        is_planned = bool(trial.plan(settings) != before[0])
        is_run: bool = is_planned or bool(trial.run(settings) != before[1])
        return is_run
    except CookhouseError as error:
        return bool(str(error) != before[0])


def test_a_setting_that_nothing_reads_is_found(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a trial that takes the record of a setting, or chance, for what comes of it."""
    recipe = Recipe(name="own", description="", config_class=Own, workflow=supervised_workflow)
    trial = Trial(recipe, tmp_path, calls, monkeypatch.chdir)
    small = {"max_steps": 1, "batch_size": 2, "n_train_samples": 4, "num_eval": 0, "num_samples": 0}
    before = outcome(trial, small)
    assert not differs(trial, small, before)
    assert not differs(trial, {**small, "tone": "soft"}, before)
    assert differs(trial, {**small, "learning_rate": 0.25}, before)


@chz.chz
class Own(SupervisedSettings):
    tone: str = chz.field(default="", doc="")
