"""An experiment as a document: written, read, made by other programs, and refused in words."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.cli import main
from cookhouse.errors import InputError
from cookhouse.recipes import Experiment, read_experiment, write_experiment
from cookhouse.recipes.run_sweep import combined, extended, sweep_settings
from cookhouse.training import FakeService

WHOLE = Experiment(
    recipe="supervised",
    settings={"num_eval": 0, "user_metadata": {"team": "ä"}},
    grid={"lora_rank": [8, 16]},
    runs=[{"learning_rate": 0.1, "batch_size": 4}, {"learning_rate": 1e-05}],
    jobs=2,
    metric="test/nll",
    direction="less",
)


HALVED = Experiment(
    recipe="supervised",
    settings={"max_steps": 8, "num_eval": 4},
    grid={"lora_rank": [8, 16]},
    min_steps=2,
    reduction_factor=2,
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
@pytest.mark.parametrize(
    "experiment", [WHOLE, Experiment(recipe="mine.py:RECIPE"), HALVED], ids=["whole", "least", "halved"]
)
def test_what_is_written_is_read_again(ending: str, experiment: Experiment) -> None:
    # Catches a number that YAML reads as a text, and a field that is left out.
    path = Path(f"rates.{ending}")
    write_experiment(experiment, path)
    assert read_experiment(path) == experiment
    with pytest.raises(InputError, match="cannot be written: File exists"):
        write_experiment(experiment, path)


def test_a_document_of_another_program_is_the_sweep_of_a_command() -> None:
    Path("rates.json").write_text(
        json.dumps({"version": 1, "recipe": ":supervised", "runs": [{"lr": 0.1, "lora_rank": 8}, {"lr": "1e-4"}]})
    )
    read = read_experiment("rates.json")
    assert combined(read.settings, read.grid, read.runs) == read.runs
    made = sweep_settings(extended(read, {"seed": "3"}, {}))
    assert [(run["learning_rate"], run["seed"]) for run in made.runs] == [(0.1, 3), (1e-4, 3)]


def test_every_run_has_its_settings_and_each_choice_of_the_grid() -> None:
    assert combined({"seed": 1}, {"lora_rank": ["8", "16"]}, WHOLE.runs) == [
        {"seed": 1, "learning_rate": 0.1, "batch_size": 4, "lora_rank": "8"},
        {"seed": 1, "learning_rate": 0.1, "batch_size": 4, "lora_rank": "16"},
        {"seed": 1, "learning_rate": 1e-05, "lora_rank": "8"},
        {"seed": 1, "learning_rate": 1e-05, "lora_rank": "16"},
    ]
    assert combined({"seed": 1, "batch_size": 8}, {}, [{"batch_size": 4}, {}]) == [
        {"seed": 1, "batch_size": 4},
        {"seed": 1, "batch_size": 8},
    ], "what a run says goes before what all of them have"
    with pytest.raises(InputError, match="that is 1,200 runs; a sweep has 1,000 at most"):
        combined({}, {"seed": list(range(400))}, [{"lora_rank": rank} for rank in (8, 16, 32)])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([{"learning_rate": 0.1}], "rates.json holds no experiment; write version: 1, recipe: NAME"),
        ({"recipe": "supervised"}, "does not say which version of the format it has; write version: 1"),
        ({"version": "1", "recipe": "supervised"}, "does not say which version"),
        ({"version": True, "recipe": "supervised"}, "does not say which version"),
        (
            {"version": 3, "recipe": "a", "seeds": 3},
            "of version 3, and this cookhouse reads version 2 at most; install",
        ),
        (
            {"version": 1, "recipe": "a", "min_steps": 2},
            "min_steps and reduction_factor are of version 2; write version",
        ),
        ({"version": 2, "recipe": "a", "min_steps": 0}, "rates.json: min_steps cannot be used"),
        ({"version": 2, "recipe": "a", "reduction_factor": 1}, "rates.json: reduction_factor cannot be used"),
        ({"version": 1, "recipe": "a", "setings": {}}, "unknown field of the experiment rates.json 'setings'; did you"),
        ({"version": 1, "runs": []}, "rates.json: recipe cannot be used: Field required"),
        ({"version": 1, "recipe": "a", "runs": {"x": 1}}, "rates.json: runs cannot be used"),
        ({"version": 1, "recipe": "a", "grid": {"x": 1}}, r"rates.json: grid\.x cannot be used"),
        ({"version": 1, "recipe": "a", "jobs": 0}, "rates.json: jobs cannot be used"),
        ({"version": 1, "recipe": "a", "direction": "up"}, "rates.json: direction cannot be used"),
    ],
)
def test_what_is_no_experiment_is_refused_in_words(document: Any, message: str) -> None:
    Path("rates.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        read_experiment("rates.json")


def test_what_has_no_form_in_a_document_is_refused() -> None:
    with pytest.raises(InputError, match="a setting of the experiment cannot be written"):
        write_experiment(Experiment(recipe="a", settings={"seed": {1, 2}}), "a.yaml")
    with pytest.raises(InputError, match=r"a\.toml ends in \.toml; an experiment's file ends in \.json, \.yaml, \.yml"):
        write_experiment(WHOLE, "a.toml")
    assert not list(Path.cwd().iterdir())


def test_a_document_has_the_least_version_that_has_its_fields() -> None:
    # Catches a plain experiment that an older cookhouse cannot read, and one of halving that it reads as a full sweep.
    assert (WHOLE.version, HALVED.version) == (1, 2)
    write_experiment(HALVED, "halved.json")
    assert json.loads(Path("halved.json").read_text())["version"] == 2
    assert extended(WHOLE, {}, {}, min_steps=4).version == 2
    assert extended(WHOLE, {}, {}, jobs=4).version == 1


def command(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["sweep", *words])
    return caught.value.code


def test_a_command_writes_what_it_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a saved experiment that is not the one of the command, and one that is saved though it cannot run.
    words = (
        "supervised",
        "learning_rate=1e-3,1e-2",
        "lora_rank=8,32",
        "num_eval=0",
        "--metric",
        "train/loss",
        "-j",
        "2",
    )
    assert command(*words, "--save", "rates.yaml") == 0
    assert yaml.safe_load(Path("rates.yaml").read_text()) == {
        "version": 1,
        "recipe": "supervised",
        "settings": {"num_eval": "0"},
        "grid": {"learning_rate": ["1e-3", "1e-2"], "lora_rank": ["8", "32"]},
        "jobs": 2,
        "metric": "train/loss",
    }
    capsys.readouterr()
    plans = []
    for typed in (words, ("rates.yaml",)):
        assert command(*typed, "log_path=runs/rates", "--dry-run") == 0
        plans.append(capsys.readouterr().out)
    assert plans[0] == plans[1]
    assert plans[0].startswith("4 runs of supervised in ")
    assert command("supervised", "learning_rate=1e-3,much", "--save", "bad.yaml") == 2
    assert not Path("bad.yaml").exists()


def test_a_sweep_keeps_a_document_that_makes_the_same_runs(conversations: Any) -> None:
    # Catches runs that cannot be made again from what their folder says.
    data = {"dataset_path": str(conversations()), "num_eval": 0, "num_samples": 0, "max_steps": 1}
    adapters = Adapters(service=FakeService().connect, sinks=[])
    experiment = extended(
        "supervised", {**data, "log_path": "runs/first"}, {"learning_rate": [0.1, 0.2]}, metric="train/loss"
    )
    cookhouse.sweep(experiment, adapters=adapters)
    kept = read_experiment("runs/first/experiment.json")
    assert kept.settings["dataset_path"] == data["dataset_path"]
    assert kept.runs == [{"learning_rate": 0.1}, {"learning_rate": 0.2}]
    cookhouse.sweep(kept, {"log_path": "runs/again"}, adapters=adapters)
    tables = [Path(f"runs/{name}/sweep.csv").read_text() for name in ("first", "again")]
    assert tables[0] == tables[1]
