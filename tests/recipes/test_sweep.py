"""A recipe with several settings: the runs, their table, and what becomes of those that fail or are interrupted."""

import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.recipes.events import Events
from tests.waiting import wait_until

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.cli import main
from cookhouse.errors import InputError
from cookhouse.recipes import Experiment, Recipe, find_recipe
from cookhouse.recipes.config import config_fields
from cookhouse.recipes.recipe import every_recipe
from cookhouse.recipes.run_sweep import NAME, read_grid, sweep_settings
from cookhouse.registry import open_registry
from cookhouse.runs import find_runs, read_history
from cookhouse.service.local import service_folder
from cookhouse.settings.facts import list_settings
from cookhouse.sweeps.record import best_text, read_sweep
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile

GRID: dict[str, list[Any]] = {"learning_rate": [1e-3, 1e-2, 1e-1], "lora_rank": [8, 32]}


@pytest.fixture
def settings(tmp_path: Path, conversations: Callable[..., Path]) -> dict[str, Any]:
    data = {"dataset_path": str(conversations()), "test_path": str(conversations("test.jsonl", 4))}
    small = {"batch_size": 4, "num_samples": 0, "eval_max_tokens": 8, "save_every": 1}
    return {**data, **small, "log_path": str(tmp_path / "runs" / "sweep")}


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fake(service: FakeService | None = None) -> Adapters:
    return Adapters(service=(service or FakeService()).connect, sinks=[])


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_combination_is_run_and_the_best_is_told(settings: dict[str, Any], jobs: int) -> None:
    # Catches a combination that is left out, runs that see one another's settings, and a best that is not.
    result = cookhouse.sweep("supervised", settings, grid=GRID, jobs=jobs, metric="test/nll", adapters=fake())
    folder = Path(settings["log_path"])
    rows = table_of(folder)
    assert [(row["learning_rate"], row["lora_rank"]) for row in rows] == [
        ("0.001", "8"),
        ("0.001", "32"),
        ("0.01", "8"),
        ("0.01", "32"),
        ("0.1", "8"),
        ("0.1", "32"),
    ]
    assert {row["state"] for row in rows} == {"finished"}
    measured = {row["run"]: float(row["test/nll"]) for row in rows}
    for name, value in measured.items():
        assert value == read_metrics(folder / name / "metrics.jsonl")[-1]["test/nll"]
    table = result.state.record.table
    assert table.best is not None
    assert measured[table.best.name] == min(measured.values())
    assert [row["run"] for row in rows if row["best"] == "1"] == [table.best.name]
    assert {run.parent for run in find_runs(folder.parent) if run.name != "sweep"} == {"sweep"}
    for row in rows:
        log = (folder / row["run"] / "logs.log").read_text()
        assert [row["run"] in line for line in log.splitlines() if " run.start " in line] == [True]
        assert " run.end " in log
    page = (folder / "report.html").read_text()
    assert "test/nll over learning_rate" in page
    assert "logarithmic axis" in page
    # Lines over one setting are of the choices of the other.
    lines = [part.split("</ul>")[0] for part in page.split('<ul class="keys">')[1:]]
    assert [[name in line for name in ("lora_rank=8", "lora_rank=32")] for line in lines] == [[True] * 2, [False] * 2]
    assert "learning_rate=0.001" in lines[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_as_many_run_at_a_time_as_are_asked_for(settings: dict[str, Any], jobs: int) -> None:
    # Catches a sweep that takes as long with several jobs as with one, or runs all at once.
    told = Events()
    adapters = Adapters(service=FakeService().connect, sinks=[told])
    cookhouse.sweep("supervised", settings, grid={"lora_rank": [8, 16, 32]}, jobs=jobs, adapters=adapters)
    parts = [event.text["text"] for event in told.all if event.name == "run.part"]
    has_begun = [text.endswith(": begins") for text in parts]
    running = [sum(1 if begins else -1 for begins in has_begun[: end + 1]) for end in range(len(has_begun))]
    assert (max(running), running[-1], sum(has_begun)) == (jobs, 0, 3)


def test_one_that_fails_leaves_the_others_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    # Catches a failure that ends the sweep, one that nobody is told of, and a sweep that cannot be gone on with.
    settings.pop("dataset_path")
    later = tmp_path / "later.jsonl"
    grid = {"dataset_path": [str(later), str(tmp_path / "train.jsonl")]}
    registry = open_registry(str(tmp_path / "registry.db"), {})
    named = {**settings, "registered_model_name": "sums"}
    result = cookhouse.sweep("supervised", named, grid=grid, adapters=replace(fake(), registry=registry))
    assert [row["state"] for row in table_of(Path(settings["log_path"]))] == ["failed", "finished"]
    (error,) = result.state.errors.values()
    assert "later.jsonl does not exist" in error
    history = read_history(Path(settings["log_path"]))
    assert history.status == "failed"
    assert "1 of 2 runs failed" in str(history.error)

    later.write_text((tmp_path / "train.jsonl").read_text())
    assert registry.find(cookhouse_query()) == [], "the best is that of all of them"
    service = FakeService()
    again = {"log_path": settings["log_path"], "behavior_if_log_dir_exists": "resume"}
    result = cookhouse.run(NAME, again, adapters=replace(fake(service), registry=registry))
    assert not result.state.errors
    assert len(registry.find(cookhouse_query())) == 1
    assert [row["state"] for row in table_of(Path(settings["log_path"]))] == ["finished", "finished"]
    steps = [call for call in service.calls if (call.kind, call.phase) == ("optim_step", "submit")]
    assert len(steps) == 3, "the one that had finished was not run again"


@pytest.mark.slow
@pytest.mark.parametrize("at", [("optim_step", 4), ("save_sampler", 0)], ids=["training", "final save"])
def test_an_interrupt_stops_all_and_is_gone_on_with(settings: dict[str, Any], at: tuple[str, int]) -> None:
    # Catches a first Ctrl-C that throws runs away, also where one of them saves its last weights, and runs that begin
    # after it.
    undisturbed = {**settings, "log_path": settings["log_path"] + "-whole"}
    cookhouse.sweep("supervised", undisturbed, grid=GRID, jobs=2, adapters=fake())

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == at:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)  # heard before it is answered

    broken = FakeService(gate=gate)
    result = cookhouse.sweep("supervised", settings, grid=GRID, jobs=2, adapters=fake(broken))
    assert result.summary.is_interrupted
    assert result.summary.next_command == f"cookhouse runs resume {settings['log_path']}"
    assert {row["state"] for row in table_of(Path(settings["log_path"]))} > {"waiting"}
    again = {"log_path": settings["log_path"], "behavior_if_log_dir_exists": "resume"}
    result = cookhouse.run(NAME, again, adapters=fake(FakeService(states=broken.states)))
    assert not result.summary.is_interrupted
    assert table_of(Path(settings["log_path"])) == table_of(Path(undisturbed["log_path"]))


def test_a_sweep_whose_last_run_is_interrupted_has_not_finished(settings: dict[str, Any], tmp_path: Path) -> None:
    # Catches a sweep of which nothing waits any more that registers a run that was cut off, and says that it is done.
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 4):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)  # heard before the step ends

    registry = open_registry(str(tmp_path / "registry.db"), {})
    named = {**settings, "registered_model_name": "sums"}
    adapters = Adapters(service=FakeService(gate=gate).connect, sinks=[], registry=registry)
    result = cookhouse.sweep("supervised", named, grid={"lora_rank": [8, 32]}, adapters=adapters)
    assert [row["state"] for row in table_of(Path(settings["log_path"]))] == ["finished", "interrupted"]
    assert result.summary.is_interrupted
    assert read_history(Path(settings["log_path"])).status == "interrupted"
    assert registry.find(cookhouse_query()) == []


KILLED = """
import json, os, signal, sys
import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile

async def gate(kind, number):
    if (kind, number) == ("optim_step", int(sys.argv[2])):
        os.kill(os.getpid(), signal.SIGKILL)

settings = json.loads(sys.argv[1])
adapters = Adapters(service=FakeService(gate=gate).connect, sinks=[])
cookhouse.sweep("supervised", settings, grid={GRID}, adapters=adapters)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_with_the_table_of_an_undisturbed_one(settings: dict[str, Any], at: int) -> None:
    # Catches a run that is lost, run twice or begun with other settings after its process was killed.
    settings |= {"save_every": 0}  # the fake service forgets its checkpoints with its process
    whole = {**settings, "log_path": settings["log_path"] + "-whole"}
    cookhouse.sweep("supervised", whole, grid=GRID, adapters=fake())
    program = [sys.executable, "-c", KILLED.replace("{GRID}", repr(GRID)), json.dumps(settings), str(at)]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    folder = Path(settings["log_path"])
    begun = [name for name in ("1", "2", "3", "4", "5", "6") if list(folder.glob(f"{name}-*"))]
    assert len(begun) == at // 3 + 1
    service = FakeService()
    cookhouse.run(NAME, {"log_path": str(folder), "behavior_if_log_dir_exists": "resume"}, adapters=fake(service))
    assert table_of(folder) == table_of(Path(whole["log_path"]))
    steps = [call for call in service.calls if (call.kind, call.phase) == ("optim_step", "submit")]
    assert len(steps) == 3 * (6 - at // 3), "those that had finished were not run again"


class TellingService(FakeService):
    """Keeps weights on another machine, and tells their checksum."""

    async def sha256_of(self, path: str) -> str | None:
        assert path.startswith("tinker://")
        return "ab" * 32


def test_the_best_alone_is_registered(settings: dict[str, Any], tmp_path: Path) -> None:
    # Catches a name that every run registers under, and weights that are not the last ones of the best run.
    registry = open_registry(str(tmp_path / "registry.db"), {})
    named = {**settings, "registered_model_name": "sums"}
    adapters = Adapters(service=TellingService().connect, sinks=[], registry=registry)
    result = cookhouse.sweep("supervised", named, grid=GRID, metric="test/nll", adapters=adapters)
    best = result.state.record.table.best
    assert best is not None
    model = registry.get("sums@1")
    assert model.run_folder == str((Path(settings["log_path"]) / best.name).resolve())
    assert model.recipe == "supervised"
    saved = CheckpointFile(Path(model.run_folder) / "checkpoints.jsonl").read()
    assert len({each.state_path for each in saved}) == 3
    assert model.artifact.path == saved[-1].state_path
    assert saved[-1].cursor.step == 3
    assert model.artifact.sha256 == "ab" * 32
    assert [version.id for version in registry.find(cookhouse_query())] == ["sums@1"]


def cookhouse_query() -> Any:
    from cookhouse.registry import Query

    return Query(name="sums")


def test_what_cannot_be_is_refused_before_anything_runs(settings: dict[str, Any]) -> None:
    # Catches a sweep that finds the bad value of its last run when the others have run.
    service = FakeService()

    def refused(match: str, grid: dict[str, Any], **more: Any) -> None:
        with pytest.raises(InputError, match=match):
            cookhouse.sweep("supervised", {**settings, **more}, grid=grid, adapters=fake(service))

    refused("run 2 of the sweep: learning_rate='high' does not fit", {"learning_rate": ["1e-4", "high"]})
    refused("run 1 of the sweep: unknown setting of recipe supervised 'rate'", {"rate": [1, 2]})
    refused("run 2 of the sweep: lora_rank is -1", {"lora_rank": [8, -1]})
    refused("runs 1 and 2 of the sweep have the same settings", {"lora_rank": [8, 8]})
    refused("registry is of the sweep as a whole", {"registry": ["a.db", "b.db"]})
    refused("batch_size is swept, and has a value as well", {"batch_size": [2, 4]})
    refused("there is one run to sweep over", {"lora_rank": [8]})
    refused("there is nothing to sweep", {})
    configs: list[dict[str, Any]] = [{"lora_rank": 8}, {"lora_rank": 16, "registry": "b.db"}]
    with pytest.raises(InputError, match="registry is of the sweep as a whole"):
        cookhouse.sweep("supervised", settings, configs=configs, adapters=fake(service))
    assert service.calls == []
    assert not Path(settings["log_path"]).exists()


def test_files_of_earlier_sweeps_name_a_recipe() -> None:
    # Catches a move of the recipe, after which no sweep that lies on a disk can be resumed.
    assert find_recipe("cookhouse.recipes.run_sweep:RECIPE").name == "sweep"


def test_commas_part_values_but_for_those_in_a_list() -> None:
    words = {"a": "1,2", "b": "x", "c": '["a,b", "c"]', "d": '["a,b"]', "e": ""}
    single, several = read_grid("supervised", words)
    assert (single, several) == ({"b": "x", "d": "a,b", "e": ""}, {"a": ["1", "2"], "c": ["a,b", "c"]})
    for text in ("1,,2", "[1, 2"):
        with pytest.raises(InputError, match="a="):
            read_grid("supervised", {"a": text})


def test_a_setting_that_is_a_list_is_one_value_as_in_a_run() -> None:
    # Catches a sweep that trains on one file each where `run` mixes them, also by another name of the setting.
    words = {"columns": "prompt:a,completion:b", "dataset": "a.csv,b.csv", "evaluators": "a,b"}
    assert read_grid("supervised", words) == (words, {})
    assert read_grid("supervised", {"columns": '["a:x,b:y", "a:x"]'})[1] == {"columns": ["a:x,b:y", "a:x"]}
    assert read_grid("rl", {"env": "arithmetic,gsm8k", "price_per_million": "train:1,sample:2"})[1] == {}


@pytest.mark.parametrize("recipe", every_recipe(), ids=lambda recipe: recipe.name)
def test_settings_whose_help_says_commas_are_lists(recipe: Recipe[Any]) -> None:
    # Catches a new setting of several names that a sweep takes apart.
    said = {field.name for field in config_fields(recipe) if "comma" in field.doc}
    assert said <= list_settings(recipe.config_class)


def test_a_sweep_whose_runs_all_fail_says_an_error_once_and_leaves_no_command(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Catches an error per run and per table, and the advice to resume a folder that is not there.
    words = [f"{name}={value}" for name, value in settings.items() if name != "dataset_path"]
    words.append(f"dataset_path={tmp_path / 'nope.jsonl'}")
    with pytest.raises(SystemExit) as caught:
        main(["sweep", "supervised", *words, "lora_rank=8,16,32", "--adapters", "noop"])
    said = capsys.readouterr()
    assert caught.value.code == 1
    assert (said.out + said.err).count("does not exist") == 1
    assert "all 3 runs failed" in said.out
    assert "cookhouse " not in said.out
    assert not Path(settings["log_path"]).exists()


def test_of_a_sweep_that_left_nothing_the_summary_names_no_file(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["dataset_path"] = str(tmp_path / "nope.jsonl")
    result = cookhouse.sweep("supervised", settings, grid={"lora_rank": [8, 16]}, adapters=fake())
    assert (result.summary.next_command, result.summary.report, "folder" in result.artifacts) == ("", None, False)
    assert len(result.state.errors) == 2


def test_a_dry_run_plans_the_data_of_each_run(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Catches a plan that checks settings alone, so that a missing file shows when the sweep has run for hours.
    words = [f"{name}={value}" for name, value in settings.items() if name != "batch_size"]

    def planned(*more: str) -> int | str | None:
        with pytest.raises(SystemExit) as caught:
            main(["sweep", "supervised", *words, *more, "--dry-run"])
        return caught.value.code

    assert planned("batch_size=2,4") == 0
    out = capsys.readouterr().out
    shared, first, second = out.split("\n1-")[0], *out.split("\n1-")[1].split("\n2-")
    assert "conversations" in shared
    assert "steps" not in shared
    assert "6 in all" in first
    assert "3 in all" in second
    words = [word for word in words if not word.startswith("dataset_path=")]
    later = tmp_path / "nope.jsonl"
    assert planned(f'dataset_path=["{tmp_path / "train.jsonl"}", "{later}"]', "batch_size=4") == 2
    error = capsys.readouterr().err
    assert "run 2-dataset_path=" in error
    assert "nope.jsonl does not exist" in error
    assert not Path(settings["log_path"]).exists()


def test_a_metric_that_no_run_has_is_told(settings: dict[str, Any]) -> None:
    grid = {"learning_rate": [1e-3, 1e-1]}
    result = cookhouse.sweep("supervised", settings, grid=grid, metric="test/nl", adapters=fake())
    assert result.state.record.table.best is None
    said = best_text(result.state.record)
    assert said.startswith("no run has it: unknown metric 'test/nl'; did you mean test/nll")


def test_the_metric_that_decides_is_written(settings: dict[str, Any]) -> None:
    # Catches runs that are compared by what they do not write.
    grid = {"learning_rate": [1e-3, 1e-1]}
    result = cookhouse.sweep(
        "supervised", settings, grid=grid, metric="time/tokens_per_second", direction="more", adapters=fake()
    )
    assert result.state.record.table.best is not None


def test_a_diverged_run_is_not_the_best(settings: dict[str, Any]) -> None:
    # Catches the value from before it diverged, which may be the best of all.
    cookhouse.sweep("supervised", settings, grid={"learning_rate": [1e-3, 1e-1]}, metric="test/nll", adapters=fake())
    folder = Path(settings["log_path"])
    best = read_sweep(folder).table.best
    assert best is not None
    with (folder / best.name / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "test/nll": NaN}\n')
    table = read_sweep(folder).table
    assert table.best is not None
    assert table.best.name != best.name
    assert [str(row.value) for row in table.rows if row.name == best.name] == ["nan"]


def test_a_part_finds_the_service_of_the_whole(tmp_path: Path) -> None:
    # Catches a part whose checkpoints cannot be sampled from, since they are looked for below its own folder.
    part = tmp_path / "sweep" / "1-a"
    part.mkdir(parents=True)
    assert service_folder(part) == part / "service"
    (tmp_path / "sweep" / "service").mkdir()
    assert service_folder(part) == part / "service", "a folder beside it that is no run's"
    (tmp_path / "sweep" / "config.json").write_text("{}")
    assert service_folder(part) == tmp_path / "sweep" / "service"


def test_the_model_of_each_run_is_asked_for(settings: dict[str, Any]) -> None:
    made = sweep_settings(Experiment(recipe="supervised", settings=settings, grid={"seed": [1, 2]}))
    assert [part["model_name"] for part in made.runs] == ["cookhouse/tiny", "cookhouse/tiny"]
    assert "log_path" not in made.runs[0]
    assert made.log_path == settings["log_path"]


async def refuse(_: Any, work: Any) -> None:
    work.close()
    raise InputError("no more")


def test_all_runs_share_one_service(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a sweep that starts an engine for each run, and one that registers the best run of no service."""
    opened: list[dict[str, Any]] = []
    service = FakeService()

    class Shared:
        connect = service.connect

        async def guard(self, work: Any) -> Any:
            return await work

    @asynccontextmanager
    async def open_connection(_: Any, **how: Any) -> Any:
        opened.append(how)
        yield Shared()

    monkeypatch.setattr("cookhouse.service.connection.open_connection", open_connection)
    registered = {"registered_model_name": "sums", "registry": f"{settings['log_path']}.db"}
    adapters = Adapters(sinks=[])
    result = cookhouse.sweep("supervised", {**settings, **registered}, grid={"lora_rank": [8, 32]}, adapters=adapters)
    assert result.state.errors == {}
    assert [how["base_models"] for how in opened] == [["cookhouse/tiny"]]
    assert result.state.registered_model == "sums@1"
    monkeypatch.setattr(Shared, "guard", refuse)
    references = {"kl_reference": ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"]}
    again = {"kl_coef": 0.1, "log_path": f"{settings['log_path']}-rl"}
    with pytest.raises(InputError, match="no more"):
        cookhouse.sweep("rl_basic", again, grid=references, adapters=adapters)
    assert opened[1]["base_models"] == ["cookhouse/tiny", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"]


@pytest.fixture(scope="module", autouse=True)
def _no_service(request: pytest.FixtureRequest) -> Iterator[None]:
    del request
    saved = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TINKER_")}
    yield
    os.environ.update(saved)


@pytest.mark.slow
def test_on_the_engine_killed_and_resumed_it_ends_with_the_same_table(settings: dict[str, Any], tmp_path: Path) -> None:
    # Catches an engine whose checkpoints of one run are taken for another's when all of them share it.
    words = [f"{name}={value}" for name, value in settings.items() if name != "log_path"]
    grid = ["learning_rate=1e-3,1e-2,1e-1", "lora_rank=8,32"]

    def command(*rest: str) -> list[str]:
        return [sys.executable, "-m", "cookhouse", *rest]

    whole, folder = tmp_path / "runs" / "whole", tmp_path / "runs" / "killed"
    subprocess.run(command("sweep", "supervised", *words, *grid, f"log_path={whole}"), check=True, cwd=tmp_path)
    killed = subprocess.Popen(command("sweep", "supervised", *words, *grid, f"log_path={folder}"), cwd=tmp_path)
    wait_until(lambda: list(folder.glob("3-*/checkpoints.jsonl")) or killed.poll() is not None)
    assert killed.poll() is None
    killed.kill()
    killed.wait()
    subprocess.run(command("runs", "resume", str(folder)), check=True, cwd=tmp_path)
    assert table_of(folder) == table_of(whole)
