"""What cannot work is refused before a session is opened, by a run and by its dry run, in the same words."""

import json
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.data import NoopDatasetStore
from cookhouse.errors import InputError
from cookhouse.naming import load
from cookhouse.recipes import Recipe, dry_run, every_recipe, pipeline_recipe, run
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.settings import RunSettings
from cookhouse.training import FakeService
from cookhouse.workflows import ChildRun, OpenedRun, Workflow, stage, supervised_workflow

OWN = """
from cookhouse import InputError

def one_argument(first):
    raise AssertionError("it was called")

def no_evaluator(settings, renderer):
    return 3

def raises(settings, renderer):
    raise KeyError("its file")

def measures_nothing(settings, renderer):
    async def measure():
        return {}
    return measure

async def grades_without_an_answer(expected):
    return 1.0

def broken_environment(settings, open_sampler):
    return settings.nothing

class Refusing:
    def open(self, split):
        raise InputError(f"the store has no set {split.name}")

def no_registry():
    return 3
"""
ONE = r"own.py:one_argument\(first\) cannot be called with "
SMALL = {"max_steps": 1, "num_eval": 2, "batch_size": 4}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something that cannot work."""

    recipe: str
    message: str
    """What is said of it, as a pattern."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    adapters: Mapping[str, Any] = field(default_factory=dict)
    """A text names an object in `OWN`."""
    environ: Mapping[str, str] = field(default_factory=dict)


def supervised(message: str, **settings: Any) -> Case:
    return Case(recipe="supervised", message=message, settings=settings)


CASES = {
    "an evaluator of one argument": supervised(
        ONE + r"\(settings, renderer\): too many positional arguments; an evaluator is named by",
        evaluators="own.py:one_argument",
    ),
    "an evaluator that raises": supervised(
        "evaluator own.py:raises cannot be made: KeyError: 'its file'", infrequent_evaluators="own.py:raises"
    ),
    "an evaluator that is none": supervised(
        "own.py:no_evaluator made 3; an evaluator is", evaluators="own.py:no_evaluator"
    ),
    "an evaluator that takes no client": supervised(
        r"what own.py:measures_nothing made: \(\) cannot be called with \(client\)",
        evaluators="own.py:measures_nothing",
    ),
    "a benchmark without its rows": supervised("gone.jsonl", evaluators="gsm8k", benchmark_data="gone.jsonl"),
    "an unknown evaluator": supervised("unknown evaluator 'gsm9k'; did you mean gsm8k", evaluators="gsm9k"),
    "an evaluator of the adapters": Case(
        recipe="supervised",
        message=r"mine\(first\) cannot be called with \(settings, renderer\)",
        adapters={"evaluators": {"mine": "one_argument"}},
    ),
    "a loss": supervised(ONE + r"\(data, logprobs\)", loss_fn="own.py:one_argument"),
    "a loss over pairs": Case(
        recipe="dpo", message=ONE + r"\(pairs, settings\)", settings={"pair_loss": "own.py:one_argument"}
    ),
    "a loss of a policy": Case(
        recipe="rl", message=ONE + r"\(data, logprobs\)", settings={"loss_fn": "own.py:one_argument"}
    ),
    "advantages": Case(
        recipe="rl", message=ONE + r"\(group, settings\)", settings={"advantage": "own.py:one_argument"}
    ),
    "advantages of a student": Case(
        recipe="on_policy_distillation",
        message=ONE + r"\(group, settings\)",
        settings={"advantage": "own.py:one_argument"},
    ),
    "a grader": Case(
        recipe="rl",
        message=r"own.py:grades_without_an_answer\(expected\) cannot be called with \(answer, expected\)",
        settings={"grader": "own.py:grades_without_an_answer", "env": "gsm8k"},
    ),
    "an environment": Case(
        recipe="rl",
        message="environment own.py:broken_environment cannot be built: AttributeError",
        settings={"env": "own.py:broken_environment"},
    ),
    "a renderer": supervised(
        r"own.py:no_registry\(\) cannot be called with \(tokenizer\)",
        renderer_name="own.py:no_registry",
        force_renderer=True,
    ),
    "a model that is nowhere": supervised(
        "nowhere", model_name="./nowhere", renderer_name="role_colon", dataset_path="bundled"
    ),
    "an unknown sink": supervised("unknown sink 'wand'; did you mean wandb", sinks="wand"),
    "a sink of one argument": supervised(ONE + r"\(folder, settings\)", sinks="own.py:one_argument"),
    "a sink whose settings are wrong": Case(
        recipe="supervised",
        message="sink opentelemetry cannot start: OTEL_EXPORTER_OTLP_PROTOCOL is 'smoke'; it must be",
        settings={"sinks": "opentelemetry"},
        environ={"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
    ),
    "no list of sinks": Case(
        recipe="supervised", message="for sinks; that must be a list", adapters={"sinks": "Refusing"}
    ),
    "a registry that is none": supervised(
        "own.py:no_registry made an int", registered_model_name="sums", registry="own.py:no_registry"
    ),
    "a registry that cannot be written": supervised(
        "the registry .*own.py/r.db cannot be written: Not a directory",
        registered_model_name="sums",
        registry="own.py/r.db",
    ),
    "a store that is a file": supervised(
        "the blob store in .*own.py cannot be written: it is a file; name another folder", artifact_store="./own.py"
    ),
    "a store of no kind": supervised("unknown scheme of a blob store 'ftp'", artifact_store="ftp://there"),
    "a folder below a file": supervised(
        "cannot write own.py/run: Not a directory; choose another log_path", log_path="own.py/run"
    ),
    "a folder of too long a name": supervised("File name too long; choose another log_path", log_path="a" * 300),
    "data that the given store has not": Case(
        recipe="supervised",
        message="the store has no set",
        settings={"dataset_path": "somebody/something"},
        adapters={"datasets": "Refusing"},
    ),
    "weights that are not there": supervised("there is no run 'nowhere'", load_checkpoint_path="nowhere"),
    "a run without weights": supervised("the run in empty has saved no checkpoint yet", load_checkpoint_path="empty"),
    "a reference without weights": Case(
        recipe="dpo",
        message="the run in empty has saved no checkpoint yet",
        settings={"reference_model": "empty"},
    ),
    "a model that is not registered": supervised("sums", load_checkpoint_path="sums@1"),
    "a teacher elsewhere without its key": Case(
        recipe="on_policy_distillation",
        message="teacher_base_url=http://there needs the key of that service; set it in TEACHER_API_KEY",
        settings={"teacher_base_url": "http://there"},
    ),
    "another teacher elsewhere": Case(
        recipe="off_policy_distillation",
        message="teacher_base_url=http://there needs the key",
        settings={"teacher_base_url": "http://there"},
    ),
    "a key that is none": Case(
        recipe="supervised",
        message="the API key starts with 'abcd'; a key starts with 'tml-'",
        adapters={"service": None},
        environ={"TINKER_API_KEY": "abcdef"},
    ),
    "an address without a key": Case(
        recipe="rlhf",
        message="no key for the service at http://there",
        settings={"base_url": "http://there"},
        adapters={"service": None},
    ),
    "a renderer of an evaluation": Case(
        recipe="eval",
        message="unknown renderer 'qwem3'",
        settings={"benchmark": "arithmetic", "renderer_name": "qwem3"},
    ),
    "weights to evaluate": Case(
        recipe="eval",
        message="the run in empty has saved no checkpoint yet",
        settings={"weights": "empty", "benchmark": "arithmetic", "model_name": "cookhouse/tiny"},
    ),
    "one of several models to evaluate": Case(
        recipe="eval",
        message="the run in empty has saved no checkpoint yet",
        settings={
            "benchmark": "arithmetic",
            "compare_with": "empty",
            "renderer_name": "human_ai",
            "model_name": "cookhouse/tiny",
        },
    ),
    "the data of the second run of three": Case(
        recipe="rlhf", message="gone.jsonl", settings={"preference_dataset_path": "gone.jsonl"}
    ),
    "a flat file that would go on": Case(
        recipe="sl_loop",
        message="log_path begun exists, and sl_loop never continues a run",
        settings={"log_path": "begun", "behavior_if_log_dir_exists": "resume"},
    ),
}


class Counted:
    """A service in memory, and a local engine that nobody may start."""

    def __init__(self) -> None:
        self.num_opened = 0
        self._service = FakeService()

    async def connect(self) -> Any:
        self.num_opened += 1
        return await self._service.connect()

    @asynccontextmanager
    async def start_engine(self, *_: Any, **__: Any) -> Any:
        self.num_opened += 1
        raise AssertionError("an engine was started")
        yield


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr("cookhouse.service.connection.local_server", made.start_engine)
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TEACHER_API_KEY", "COOKHOUSE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "checkpoints.jsonl").touch()
    (tmp_path / "begun").mkdir()
    begun = {"recipe": "sl_loop", "config": {}}
    (tmp_path / "begun" / "config.json").write_text(json.dumps(begun))
    return made


def entries(folder: Path) -> list[Path]:
    """All below `folder` but the bytecode of modules that a case names."""
    return [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts]


def adapters_of(case: Case, counted: Counted) -> Adapters:
    def own(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: own(each) for name, each in value.items()}
        found = load(f"own.py:{value}") if isinstance(value, str) else value
        return found() if isinstance(found, type) else found

    given = {name: own(value) for name, value in case.adapters.items()}
    return Adapters(**{"service": counted.connect, **given})


@pytest.mark.parametrize("name", CASES)
def test_a_run_and_its_dry_run_refuse_alike_before_a_session_is_opened(
    name: str, counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a dry run that promises what the run then refuses, and a run that starts an engine for nothing."""
    case = CASES[name]
    if case.settings.get("sinks") == "opentelemetry":
        pytest.importorskip("opentelemetry.sdk")
    for variable, value in case.environ.items():
        monkeypatch.setenv(variable, value)
    config = {"log_path": "run", **case.settings}
    adapters = adapters_of(case, counted)
    before = entries(tmp_path)
    with pytest.raises(InputError, match=case.message) as of_dry_run:
        dry_run(case.recipe, config, adapters=adapters)
    assert entries(tmp_path) == before
    with pytest.raises(InputError, match=case.message) as of_run:
        run(case.recipe, config, adapters=adapters)
    assert str(of_run.value) == str(of_dry_run.value)
    assert counted.num_opened == 0
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("recipe", [recipe.name for recipe in every_recipe()])
def test_every_recipe_is_prepared_in_this_way(recipe: str, counted: Counted) -> None:
    for settings, message in (
        ({"log_path": "own.py/run"}, "cannot write own.py/run: Not a directory"),
        ({"log_path": "run", "sinks": "own.py:one_argument"}, ONE),
        ({"log_path": "run", "artifact_store": "./own.py"}, "it is a file"),
    ):
        given = {**settings, **({"preference_model": "tinker://a/b"} if recipe == "preference_rl" else {})}
        for start in (dry_run, run):
            with pytest.raises(InputError, match=message):
                start(recipe, given, adapters=Adapters(service=counted.connect))
    assert counted.num_opened == 0


def test_a_dry_run_reads_from_the_given_store_and_opens_nothing(counted: Counted, tmp_path: Path) -> None:
    settings = {"dataset_path": "somebody/something", "log_path": "run", **SMALL}
    adapters = Adapters(service=counted.connect, datasets=NoopDatasetStore())
    plan = dry_run("supervised", settings, adapters=adapters)
    assert plan.facts["steps"].startswith("1 ")
    assert (counted.num_opened, (tmp_path / "run").exists()) == (0, False)
    assert run("supervised", settings, adapters=adapters).summary.num_steps == 1
    assert counted.num_opened == 1, "whoever opens a session is counted"


def test_a_dry_run_goes_no_further_than_the_first_stage_that_opens_something(counted: Counted) -> None:
    """Stages behind it may read what it leaves, also those that need no port themselves."""

    @stage()
    async def look(opened: OpenedRun) -> None:
        raise AssertionError(f"{opened} cannot be there")

    def workflow(config: Any) -> Workflow[Any]:
        made: Workflow[Any] = supervised_workflow(config).inserted(look, after="init_session")
        return made

    recipe = Recipe(name="mine", description="", config_class=SupervisedConfig, workflow=workflow)
    dry_run(recipe, {"log_path": "run"}, adapters=Adapters(service=counted.connect))
    assert counted.num_opened == 0


def test_a_run_that_takes_what_others_leave_is_prepared_when_they_have(counted: Counted) -> None:
    """Nobody can tell before what it will find there: it is neither refused nor read."""
    runs = [
        ChildRun(name="first", recipe="supervised", settings=lambda _: SMALL),
        ChildRun(name="second", recipe="supervised", settings=lambda done: {"dataset_path": f"{done['first']}/rows"}),
    ]
    recipe = pipeline_recipe(name="two", description="", config_class=RunSettings, runs=lambda _: runs)
    dry_run(recipe, {"log_path": "run"}, adapters=Adapters(service=counted.connect))
