"""Runs read their ports, and what no-ops made up is marked wherever a figure of it is read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.assets import TINY_MODEL
from cookhouse.blobs import LocalBlobStore, NoopBlobStore
from cookhouse.chat import Message
from cookhouse.errors import InputError, ServiceError, UnknownNameError
from cookhouse.evals import Metrics
from cookhouse.models.hub import NoopHub
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import every_recipe, find_recipe
from cookhouse.runs import read_result
from cookhouse.sampling_client import SampleClient
from cookhouse.training import FakeService
from cookhouse.workflows import stage, supervised_workflow

ALL = ["blobs", "completer", "datasets", "evaluators", "hub", "registry", "service", "teacher"]
SMALL = {"max_steps": 2, "batch_size": 2, "group_size": 2, "num_eval": 2, "num_epochs": 1}


def run(recipe: str, folder: Path, adapters: Adapters, **settings: Any) -> Any:
    config_class = find_recipe(recipe).config_class
    fields = config_class.__annotations__ | {name: 0 for base in config_class.__mro__ for name in vars(base)}
    small = {name: value for name, value in SMALL.items() if name in fields}
    return cookhouse.run(recipe, {**small, **settings, "log_path": str(folder)}, adapters=adapters)


NEEDS_LIBRARY = {"verifiers_rl", "textarena_rl"}
NEEDED = {"preference_rl": {"preference_model": "anybody"}}
"""Settings without which a recipe has nothing to run on."""


@pytest.mark.parametrize("recipe", sorted({recipe.name for recipe in every_recipe()} - NEEDS_LIBRARY))
def test_every_recipe_runs_over_no_ops_and_says_so(recipe: str, tmp_path: Path) -> None:
    result = run(recipe, tmp_path / "run", Adapters.noop(sinks=[]), **NEEDED.get(recipe, {}))
    assert result.summary.synthetic == tuple(ALL)
    assert result.metrics["synthetic"] == 1.0
    assert result.artifacts["synthetic"] == ", ".join(ALL)
    assert json.loads((tmp_path / "run/config.json").read_text())["synthetic"] == ALL
    kept = read_result(tmp_path / "run")
    assert kept is not None
    assert kept.summary.synthetic == tuple(ALL)
    assert result.summary.report is not None
    page = result.summary.report.read_text()
    assert "(synthetic)" in page
    assert "no-op adapters made it up: " in page
    assert "cookhouse report" in result.summary.next_command, "nobody can sample from what is made up"


def test_no_ops_are_the_same_for_a_seed(tmp_path: Path) -> None:
    def losses(name: str, seed: int) -> list[float]:
        run("supervised", tmp_path / name, Adapters.noop(seed=seed, sinks=[]))
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [row["train/loss"] for row in rows if "train/loss" in row]

    first = losses("a", 1)
    assert first == losses("b", 1)
    assert first != losses("c", 2)


def test_a_run_that_makes_nothing_up_is_not_marked(tmp_path: Path) -> None:
    class Real(FakeService):
        synthetic = False

    result = run("supervised", tmp_path / "run", Adapters(service=Real().connect, sinks=[]))
    assert result.summary.synthetic == ()
    assert "synthetic" not in result.metrics
    assert "(synthetic)" not in (tmp_path / "run/report.html").read_text()


def test_a_resumed_run_stays_marked(tmp_path: Path) -> None:
    class Real(FakeService):
        synthetic = False

    service = Real()
    made_up = Adapters.noop(service=service.connect, sinks=[])
    run("supervised", tmp_path / "run", made_up)
    again = Adapters(service=service.connect, sinks=[])
    result = run("supervised", tmp_path / "run", again, behavior_if_log_dir_exists="resume")
    assert "evaluators" in result.summary.synthetic


def test_evaluators_that_adapters_bring_run_beside_the_others(tmp_path: Path) -> None:
    asked = []

    def make(settings: Any, renderer: Any) -> Any:
        del renderer

        async def measure(client: SampleClient) -> Metrics:
            asked.append(client)
            return {"mine": float(settings.seed)}

        return measure

    adapters = Adapters(service=FakeService().connect, evaluators={"mine": make}, sinks=[])
    result = run("supervised", tmp_path / "run", adapters, seed=5)
    assert len(asked) == 2, "before training, and after it"
    assert result.metrics["test/mine"] == 5.0
    assert "test/nll" in result.metrics


def test_a_completer_answers_in_the_place_of_a_second_model(tmp_path: Path) -> None:
    opened, asked = [], []

    def open_completer(name: str) -> Any:
        opened.append(name)

        async def complete(messages: Sequence[Message]) -> Message:
            asked.append(messages)
            return {"role": "assistant", "content": "Yes, it is."}

        return complete

    question = get_tokenizer(TINY_MODEL).encode(" Is it alive?\n")
    service = FakeService(answer=lambda *_: question)
    adapters = Adapters(service=service.connect, completer=open_completer, sinks=[])
    settings = {"answerer_model": "vendor/any-model", "max_tokens": 64}
    result = run("twenty_questions", tmp_path / "run", adapters, **settings)
    assert opened == ["vendor/any-model"]
    assert asked
    assert result.metrics["env/all/answerer/undecided"] == 0.0
    assert not any(call.kind == "create_sampling_client" for call in service.calls), "the service was asked for it"


def test_the_hub_of_the_bundle_names_the_tokenizer(tmp_path: Path) -> None:
    hub = NoopHub()
    adapters = Adapters(service=FakeService().connect, hub=hub, sinks=[])
    run("supervised", tmp_path / "run", adapters, model_name="Qwen/Qwen3-4B", dataset_path="bundled")
    assert json.loads((tmp_path / "run/config.json").read_text())["synthetic"] == ["hub", "service"]


def test_the_files_of_a_run_are_put_where_the_setting_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    result = run("supervised", Path("runs/first"), Adapters.noop(sinks=[]), artifact_store="kept")
    assert result.artifacts["artifact_store"] == str(tmp_path / "kept/runs/first")
    keys = set(LocalBlobStore("kept").list("runs/first"))
    names = {"config.json", "metrics.jsonl", "checkpoints.jsonl", "result.json", "report.html", "logs.log"}
    assert {f"runs/first/{name}" for name in names} <= keys
    assert LocalBlobStore("kept").get("runs/first/result.json") == Path("runs/first/result.json").read_bytes()


def test_keys_of_the_embedded_service_stay_at_home(tmp_path: Path) -> None:
    from cookhouse.runs import put_run

    for name in ("service/api-key", "service/cookhouse.db", "service/checkpoints/a/w.safetensors", "config.json"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("x")
    store = NoopBlobStore()
    put_run(tmp_path / "run", store)
    assert [key.partition("/run/")[2] or key for key in store.list()] == [
        "run/config.json",
        "run/service/checkpoints/a/w.safetensors",
    ]


def test_a_store_that_fails_at_the_end_leaves_a_whole_run(tmp_path: Path) -> None:
    class Full(NoopBlobStore):
        def _write(self, key: str, content: Any) -> None:
            del content
            raise ServiceError(f"no room for {key}")

    with pytest.raises(ServiceError, match="no room for") as caught:
        run("supervised", tmp_path / "run", Adapters.noop(blobs=Full(), sinks=[]))
    assert any("the run is complete in" in note for note in caught.value.__notes__)
    assert read_result(tmp_path / "run") is not None


@pytest.mark.parametrize(
    ("settings", "adapters", "message"),
    [
        ({"artifact_store": "s4://bucket"}, Adapters.noop(sinks=[]), "unknown scheme of a blob store 's4'"),
        ({"log_path": "runs/.hidden"}, Adapters.noop(sinks=[]), "is no key of a blob"),
        ({"base_url": "http://a:1"}, Adapters.local(sinks=[]), "choose the local engine, and base_url=http://a:1"),
        ({}, Adapters.hosted(sinks=[]), "no key for the hosted service; set TINKER_API_KEY"),
        (
            {"base_url": "http://b:1"},
            Adapters.hosted(base_url="http://a:1", sinks=[]),
            "and base_url=http://b:1; leave one out",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    settings: dict[str, Any], adapters: Adapters, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=message):
        cookhouse.run("supervised", {"max_steps": 1, "log_path": "run", **settings}, adapters=adapters)
    assert not list(tmp_path.iterdir())


def test_recipes_say_which_adapters_they_take() -> None:
    recipe = find_recipe("twenty_questions")
    assert recipe.required_adapters == ("service",)
    assert recipe.optional_adapters == ("blobs", "completer", "evaluators", "hub", "registry", "sinks")
    assert "datasets" in find_recipe("supervised").optional_adapters
    assert recipe.default_config == recipe.config_class()


def test_a_stage_that_needs_a_port_nobody_has_is_refused(tmp_path: Path) -> None:
    @stage(needs=("servce",))
    async def mine() -> None: ...

    from dataclasses import replace

    recipe = find_recipe("supervised")
    wrong = replace(recipe, workflow=lambda config: supervised_workflow(config).inserted(mine, after="save_final"))
    service = FakeService()
    with pytest.raises(UnknownNameError, match=r"unknown port 'servce'; did you mean service.*stage mine of workflow"):
        cookhouse.run(wrong, {"log_path": str(tmp_path / "run")}, adapters=Adapters(service=service.connect, sinks=[]))
    assert not service.calls
