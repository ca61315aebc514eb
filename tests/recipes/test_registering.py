"""Runs that register what they trained, and runs that begin with what was registered; over the fake service."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.cli.models.registering import model_by_hand
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, run_async
from cookhouse.registry import Artifact, Descent, ModelRegistry, ModelStage, NewModel, Query, read_artifact
from cookhouse.registry.sqlite import SqliteRegistry
from cookhouse.runs import read_record, read_result
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

Settings = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COOKHOUSE_REGISTRY", raising=False)


@pytest.fixture
def registry(tmp_path: Path) -> SqliteRegistry:
    """The one that a run finds by itself."""
    return SqliteRegistry(tmp_path / "runs" / "registry.db")


def word(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Answers one of two numbers."""
    del theta, prompt_T
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(f" {chance.integers(2)}\n", add_special_tokens=False)
    return answer


def write(file: str, rows: Sequence[dict[str, str]]) -> None:
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))


def settings_of(run: str) -> dict[str, Any]:
    return dict(json.loads((Path(run) / "config.json").read_text())["config"])


async def train(
    recipe: str, service: FakeService | None = None, port: ModelRegistry | None = None, **settings: Any
) -> Any:
    """A run of a few steps, whose result it gives."""
    rows = {
        "supervised": [{"prompt": f"say {n}", "completion": str(n)} for n in range(4)],
        "rl": [{"question": f"Compute {n} + 0.", "answer": str(n)} for n in range(4)],
    }
    kind = "supervised" if recipe == "supervised" else "rl"
    write(f"{kind}.jsonl", rows[kind])
    few = {"batch_size": 2, "max_steps": 1, "dataset_path": f"{kind}.jsonl"}
    quick = {"num_eval": 0} if recipe != "rl_loop" else {"group_size": 2}
    sinks = settings.pop("sinks_given", [])
    chosen = service or FakeService(answer=word)
    adapters = Adapters(service=chosen.connect, sinks=sinks, registry=port)
    return await run_async(recipe, {**few, **quick, **settings}, adapters=adapters)


async def test_a_run_registers_what_it_trained(registry: SqliteRegistry, tmp_path: Path) -> None:
    events = Events()
    result = await train("supervised", registered_model_name="sums", log_path="runs/a", sinks_given=[events])
    model = result.state.registered_model
    assert (model.id, model.name, model.version) == ("sums@1", "sums", 1)
    assert registry.get("sums") == model
    assert (model.artifact.path, model.weights_to_sample.path) == (
        result.summary.state_path,
        result.summary.sampler_path,
    )
    assert (model.base_model, model.recipe, model.run_folder) == (
        "cookhouse/tiny",
        "supervised",
        str(tmp_path / "runs" / "a"),
    )
    assert model.metrics["train/loss"] == result.metrics["train/loss"]
    assert model.parent is None
    assert events.names.count("model.registered") == 1
    kept = read_result(tmp_path / "runs" / "a")
    assert kept is not None
    assert kept.summary.registered_model == "sums@1"
    assert kept.artifacts["registered_model"] == "sums@1"
    assert read_record(tmp_path / "runs" / "a").facts["registered as"] == "sums@1"
    assert "sums@1" in (tmp_path / "runs" / "a" / "report.html").read_text()


async def test_a_run_without_a_name_registers_nothing_and_makes_no_registry(registry: SqliteRegistry) -> None:
    result = await train("supervised")
    assert result.state.registered_model is None
    assert result.summary.registered_model is None
    assert not registry.file.exists()


@pytest.mark.parametrize(
    ("recipe", "descent"),
    [
        ("supervised", Descent.FINE_TUNED_FROM),
        ("rl_basic", Descent.RL_TRAINED_FROM),
        ("rl_loop", Descent.RL_TRAINED_FROM),
    ],
)
async def test_every_kind_of_training_registers(recipe: str, descent: Descent) -> None:
    result = await train(recipe, registered_model_name="sums")
    assert (result.state.registered_model.id, result.state.registered_model.descent) == ("sums@1", descent)
    assert result.state.registered_model.weights_to_sample.path == result.summary.sampler_path


class HonestService(FakeService):
    """Stands for one that computes what it says."""

    synthetic = False


async def noop_run(**ports: Any) -> Any:
    write("supervised.jsonl", [{"prompt": f"say {n}", "completion": str(n)} for n in range(4)])
    settings = {"dataset_path": "supervised.jsonl", "max_steps": 1, "num_eval": 0, "registered_model_name": "sums"}
    return await run_async("supervised", settings, adapters=Adapters.noop(sinks=[], **ports))


async def test_what_was_made_up_is_registered_marked(registry: SqliteRegistry) -> None:
    """Would catch weights or metrics that no service computed, among those that somebody may serve."""
    for result in (
        await train("supervised", FakeService(answer=word), registered_model_name="sums"),
        await train("rl_loop", FakeService(answer=word), registered_model_name="sums"),
        await noop_run(registry=registry),
        await noop_run(registry=registry, service=HonestService(answer=word).connect),
    ):
        assert result.state.registered_model.is_synthetic
    assert len(registry.find(Query())) == 4
    service = HonestService(answer=word)
    honest = (await train("supervised", service, registered_model_name="real")).state.registered_model
    assert not honest.is_synthetic
    registry.register(NewModel(name="fake", base_model="m", artifact=honest.artifact, is_synthetic=True))
    child = await train("supervised", service, registered_model_name="child", load_checkpoint_path="fake@1")
    assert child.state.registered_model.is_synthetic


class TellingService(FakeService):
    """Keeps weights on another machine, and tells their checksum."""

    async def sha256_of(self, path: str) -> str | None:
        return hashlib.sha256(path.encode()).hexdigest()


@pytest.mark.parametrize("recipe", ["supervised", "rl_loop"])
async def test_weights_on_a_server_have_the_checksum_that_it_tells(recipe: str) -> None:
    """Would catch a version of which nobody can say whether its weights are still the same."""
    version = (await train(recipe, TellingService(answer=word), registered_model_name="sums")).state.registered_model
    for artifact in (version.artifact, version.weights_to_sample):
        assert artifact.files is None
        assert artifact.sha256 == hashlib.sha256(artifact.path.encode()).hexdigest()


async def test_a_noop_registry_says_so_itself() -> None:
    result = await noop_run()
    assert (result.state.registered_model.id, result.state.registered_model.created_at) == ("sums@1", 1.0)


async def test_text_that_was_measured_is_no_metric_of_a_model(registry: SqliteRegistry, tmp_path: Path) -> None:
    # Catches a run that trains to its end and then breaks on what its evaluator said in words.
    (tmp_path / "said.py").write_text(
        "def evaluator(settings, renderer):\n"
        "    async def measure(client):\n"
        "        return {'verdict': 'good', 'share': 0.5}\n"
        "    return measure\n"
    )
    evaluators = f"{tmp_path}/said.py:evaluator"
    result = await train("supervised", log_path="runs/a", registered_model_name="sums", evaluators=evaluators)
    assert result.metrics["test/verdict"] == "good"
    by_hand = model_by_hand(
        registry, "more", "runs/a", run=None, base_model=None, parent=None, descent="fine_tuned_from", metrics=()
    )
    for version in (result.state.registered_model, registry.register(by_hand)):
        assert version.metrics["test/share"] == 0.5
        assert "test/verdict" not in version.metrics


async def test_a_run_that_was_made_up_is_registered_marked_by_hand_too(registry: SqliteRegistry) -> None:
    await train("supervised", FakeService(answer=word), log_path="runs/made-up")
    await train("supervised", HonestService(answer=word), log_path="runs/real")
    for run, is_synthetic in (("made-up", True), ("real", False)):
        by_hand = model_by_hand(
            registry, run, f"runs/{run}", run=None, base_model=None, parent=None, descent="fine_tuned_from", metrics=()
        )
        version = registry.register(by_hand)
        assert version.is_synthetic is is_synthetic


@pytest.mark.parametrize("by", ["sums@1", "sums@production", "runs/a", "path", "sampler"])
async def test_the_parent_is_found_however_the_weights_are_named(by: str, registry: SqliteRegistry) -> None:
    """Would catch a lineage that breaks where somebody names a folder or a path instead of the model."""
    service = FakeService(answer=word)
    first = await train("supervised", service, registered_model_name="sums", log_path="runs/a")
    registry.promote("sums@1", ModelStage.PRODUCTION)
    name = {"path": first.summary.state_path, "sampler": first.summary.sampler_path}.get(by, by)
    second = await train("rl_basic", service, registered_model_name="better", load_checkpoint_path=name)
    model = second.state.registered_model
    assert (model.parent, model.descent) == ("sums@1", Descent.RL_TRAINED_FROM)


async def test_weights_of_a_run_that_is_not_registered_have_no_parent() -> None:
    service = FakeService(answer=word)
    await train("supervised", service, log_path="runs/a")
    second = await train("supervised", service, registered_model_name="sums", load_checkpoint_path="runs/a")
    assert second.state.registered_model.parent is None


async def test_registered_models_are_loaded_and_looked_at(registry: SqliteRegistry) -> None:
    """Would catch a name that is handed to the service as it is, or weights of another purpose."""
    service = FakeService(answer=word)
    first = (await train("supervised", service, registered_model_name="sums")).summary
    registry.promote("sums@1", ModelStage.STAGING)
    loaded: list[str] = []
    load, sample = service.create_training_client_from_state, service.create_sampling_client

    def load_and_note(path: str, *args: Any, **more: Any) -> Any:
        loaded.append(path)
        return load(path, *args, **more)

    def sample_and_note(**what: Any) -> Any:
        loaded.append(str(what.get("model_path")))
        return sample(**what)

    service.create_training_client_from_state = load_and_note  # type: ignore[method-assign]
    service.create_sampling_client = sample_and_note  # type: ignore[method-assign, assignment]
    await train(
        "rl_basic", service, load_checkpoint_path="sums@staging", kl_reference="sums@1", kl_coef=0.1, log_path="runs/b"
    )
    assert loaded[:2] == [first.state_path, first.sampler_path]
    config = settings_of("runs/b")
    assert (config["load_checkpoint_path"], config["kl_reference"]) == ("sums@1", "sums@1")


async def test_a_stage_that_has_another_version_meanwhile_does_not_change_a_run(registry: SqliteRegistry) -> None:
    """Would catch a resumed run that is pulled to other weights than those it began with."""
    service = FakeService(answer=word)
    for _ in range(2):
        await train("supervised", service, registered_model_name="sums")
    registry.promote("sums@1", ModelStage.PRODUCTION)
    settings: dict[str, Any] = {"load_checkpoint_path": "sums@production", "log_path": "runs/b"}
    await train("supervised", service, **settings)
    registry.promote("sums@2", ModelStage.PRODUCTION)
    with pytest.raises(InputError, match="load_checkpoint_path='sums@2', but the run in runs/b was started with 'sums"):
        await train("supervised", service, behavior_if_log_dir_exists="resume", **settings)


async def test_a_run_that_is_resumed_at_its_end_keeps_its_number(registry: SqliteRegistry) -> None:
    service = FakeService(answer=word)
    settings: dict[str, Any] = {"registered_model_name": "sums", "log_path": "runs/a"}
    await train("supervised", service, **settings)
    again = await train("supervised", service, behavior_if_log_dir_exists="resume", **settings)
    assert again.state.registered_model.id == "sums@1"
    assert [version.id for version in registry.find(Query())] == ["sums@1"]


async def test_a_registry_that_is_given_is_the_one(registry: SqliteRegistry, tmp_path: Path) -> None:
    other = SqliteRegistry(tmp_path / "other.db")
    await train("supervised", port=other, registered_model_name="sums")
    assert other.get("sums@1").name == "sums"
    assert not registry.file.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"registered_model_name": "a/b"}, "'a/b' cannot name a registered model"),
        ({"registered_model_name": "sums", "registry": "mlfow"}, "unknown registry 'mlfow'; did you mean mlflow?"),
        ({"load_checkpoint_path": "sums@1"}, "unknown registered model 'sums'; allowed: changed, folder, gone, other"),
        ({"load_checkpoint_path": "other@9"}, "unknown registered model 'other@9'; did you mean other@1?"),
        ({"load_checkpoint_path": "other@staging"}, "no version of other is in staging: other@1 is in experiment"),
        ({"kl_reference": "sums@1", "kl_coef": 0.1}, "unknown registered model 'sums'"),
        (
            {"load_checkpoint_path": "other"},
            "there is no run 'other'.* a tinker:// path, or a registered model as ",
        ),
        (
            {"load_checkpoint_path": "folder@1"},
            "the weights of folder@1 are the folder .*, which no service has; `cook",
        ),
        ({"load_checkpoint_path": "changed@1"}, "the weights of changed@1 have changed since they were registered"),
        ({"load_checkpoint_path": "gone@1"}, "the weights of gone@1 are gone: there are no files in"),
    ],
)
async def test_what_cannot_be_named_is_refused_and_leaves_nothing(
    settings: dict[str, Any], message: str, registry: SqliteRegistry, tmp_path: Path
) -> None:
    registry.register(NewModel(name="other", base_model="m", artifact=Artifact(path="tinker://a/weights/b")))
    for name in ("folder", "changed", "gone"):
        weights = tmp_path / "kept" / name
        weights.mkdir(parents=True)
        (weights / "adapter").write_text(name)
        path = str(weights) if name == "folder" else f"tinker://{name}/weights/final"
        registry.register(NewModel(name=name, base_model="m", artifact=read_artifact(path, weights)))
    (tmp_path / "kept" / "changed" / "adapter").write_text("other")
    (tmp_path / "kept" / "gone" / "adapter").unlink()
    with pytest.raises(InputError, match=message):
        await train("rl_basic", log_path="runs/a", **settings)
    assert not (tmp_path / "runs" / "a").exists()


def test_a_dry_run_tells_of_names_that_are_not_there() -> None:
    with pytest.raises(InputError, match="unknown registered model 'sums'; none is defined"):
        dry_run("supervised", {"load_checkpoint_path": "sums@1"})
