"""Every place that asks for weights takes a name to mean the same: catches one that takes names apart by itself."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cookhouse import weights
from cookhouse.algorithms.base.second_model import SecondModel, open_sampler, sampler_place
from cookhouse.algorithms.pairs.reference import open_reference
from cookhouse.cli.checkpoints.saved import find_saved
from cookhouse.cli.models.registering import model_by_hand
from cookhouse.cli.serve import named_weights
from cookhouse.errors import InputError
from cookhouse.recipes.eval import origin_of
from cookhouse.registry import Artifact, ModelRegistry, NewModel, open_registry
from cookhouse.runs.names import REFERENCE_FILE
from cookhouse.service.sampling.target import find_target
from cookhouse.settings import PreferenceSettings, TrainingSettings
from cookhouse.training import FakeService, ServiceClient, SessionSpec, open_session
from cookhouse.weights.names import find_weights
from cookhouse.weights.peft_folders import peft_path
from cookhouse.workflows.distillation.teachers import TeacherService

STATE, SAMPLER = "tinker://r/weights/last", "tinker://r/sampler_weights/last"
RENDERER = "role_colon"


def write_run(folder: Path, base_model: str, *, is_best: bool = False) -> None:
    folder.mkdir(parents=True)
    config = {"recipe": "supervised", "config": {"model_name": base_model, "renderer_name": RENDERER}}
    (folder / "config.json").write_text(json.dumps(config))
    place = {"name": "last", "epoch": 0, "batch": 0, "step": 1, "final": not is_best}
    points: list[dict[str, Any]] = [{**place, "state_path": STATE, "sampler_path": SAMPLER}]
    if is_best:  # what is saved later is worse
        points[0]["best"] = {"test/nll": 1.0}
        points.append({**place, "step": 2, "state_path": "tinker://r/weights/2", "sampler_path": "tinker://r/s/2"})
    (folder / "checkpoints.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))


def write_adapter(folder: Path, base_model: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base_model}))
    (folder / "adapter_model.safetensors").write_bytes(b"")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRegistry:
    """Weights of every form, in the folder that one works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COOKHOUSE_REGISTRY", raising=False)
    write_run(Path("runs/first"), "org/trained")
    write_run(Path("runs/both"), "org/trained")
    write_adapter(Path("runs/both"), "org/other")
    write_run(Path("runs/kept"), "org/trained", is_best=True)
    write_adapter(Path("adapter"), "org/adapted")
    found = open_registry(None, {})
    found.register(
        NewModel(
            name="sums",
            base_model="org/trained",
            artifact=Artifact(path=STATE),
            sampler=Artifact(path=SAMPLER),
            run_folder=str(tmp_path / "runs/first"),
        )
    )
    return found


FORMS = {
    "path": (SAMPLER, SAMPLER, SAMPLER, "org/trained"),
    "run": ("runs/first", STATE, SAMPLER, "org/trained"),
    "run with an adapter in it": ("runs/both", STATE, SAMPLER, "org/trained"),
    "run that keeps its best": ("runs/kept", STATE, SAMPLER, "org/trained"),
    "PEFT folder": ("adapter", None, None, "org/adapted"),
    "registered": ("sums@1", STATE, SAMPLER, "org/trained"),
    "base model": ("org/base", None, None, "org/base"),
}
"""By form: the name, what it means to train on from and to sample from (None: no `tinker://` path, or that of the
folder's files), and the base model."""


def paths_of(name: str, state: str | None, sampler: str | None) -> tuple[str | None, str | None]:
    return (peft_path(Path(name)),) * 2 if name == "adapter" else (state, sampler)


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_a_sampler_is_opened_of_what_is_named(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    _, sampler = paths_of(name, state, sampler)
    expected = {"base_model": base_model} if sampler is None else {"model_path": sampler}
    assert sampler_place(name, registry) == expected


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_a_reference_is_what_is_named(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    state, _ = paths_of(name, state, sampler)
    expected = {"base_model": base_model} if state is None else {"model_path": state}
    assert find_weights(name, registry).place("training") == expected


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_a_command_samples_from_what_is_named(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    del registry
    target = find_target(name)
    assert (target.sampler_path, target.model_name) == (paths_of(name, state, sampler)[1], base_model)


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_evaluation_and_judges_know_the_base_model(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    del state, sampler
    assert origin_of(name).base_model == base_model
    assert find_weights(name, registry).origin((Path("runs"),)).base_model == base_model


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), list(FORMS.values())[:-1], ids=list(FORMS)[:-1])
async def test_a_run_starts_from_what_is_named(
    name: str,
    state: str | None,
    sampler: str | None,
    base_model: str,
    registry: ModelRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del base_model
    asked: list[str] = []
    service = FakeService()
    create: Callable[..., Any] = service.create_lora_training_client

    def from_state(path: str, **_: Any) -> Any:
        asked.append(path)
        return create("fake", seed=0)

    monkeypatch.setattr(service, "create_training_client_from_state", from_state)
    settings = TrainingSettings(load_checkpoint_path=name)
    session = await open_session(service.connect, SessionSpec(settings=settings, registry=registry))
    await session.close("success")
    assert asked == [paths_of(name, state, sampler)[0]]


class Asked:
    """A service that records what it is asked to open."""

    def __init__(self) -> None:
        self.places: list[dict[str, Any]] = []

    async def create_sampling_client(self, **place: Any) -> Any:
        self.places.append(place)
        return SimpleNamespace(compute_logprobs=None)

    async def create_training_client_from_state(self, path: str) -> Any:
        self.places.append({"model_path": path})
        return SimpleNamespace()


async def open_second(service: ServiceClient, name: str, registry: ModelRegistry) -> None:
    await SecondModel(name).open(service, registry)


async def open_teacher(service: ServiceClient, name: str, registry: ModelRegistry) -> None:
    await TeacherService(service, None, registry, cast(Any, None)).open(name)


OPENED: dict[str, Callable[[ServiceClient, str, ModelRegistry], Awaitable[object]]] = {
    "kl_reference": open_sampler,
    "answerer, opponent, preference model": open_second,
    "teacher": open_teacher,
}


@pytest.mark.anyio
@pytest.mark.parametrize("open_it", OPENED.values(), ids=OPENED)
@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
async def test_another_model_of_a_run_is_what_is_named(
    name: str,
    state: str | None,
    sampler: str | None,
    base_model: str,
    open_it: Callable[[ServiceClient, str, ModelRegistry], Awaitable[object]],
    registry: ModelRegistry,
) -> None:
    asked = Asked()
    await open_it(cast(ServiceClient, asked), name, registry)
    _, sampler = paths_of(name, state, sampler)
    assert asked.places == [{"base_model": base_model} if sampler is None else {"model_path": sampler}]


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
async def test_the_reference_of_preferences_is_what_is_named(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry, tmp_path: Path
) -> None:
    del sampler
    asked = Asked()
    session, folder = SimpleNamespace(service=asked), SimpleNamespace(path=tmp_path, resume=None)
    settings = PreferenceSettings(reference_model=name)
    await open_reference(settings, cast(Any, session), cast(Any, folder), registry)
    state, _ = paths_of(name, state, None)
    expected = {"base_model": base_model} if state is None else {"model_path": state}
    assert asked.places == [expected]
    assert json.loads((tmp_path / REFERENCE_FILE).read_text()) == expected


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_an_export_takes_what_is_named(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    """What has no files of a checkpoint is refused: a PEFT folder is one already, a base model has none."""
    del sampler, base_model, registry
    if state is None:
        with pytest.raises(InputError, match=name):
            find_saved(name, None, None)
    else:
        assert find_saved(name, None, None).path == state


@pytest.mark.parametrize(("name", "state", "sampler", "base_model"), FORMS.values(), ids=FORMS)
def test_what_is_named_is_registered(
    name: str, state: str | None, sampler: str | None, base_model: str, registry: ModelRegistry
) -> None:
    """What is registered and what is a base model are refused."""
    del sampler
    options: dict[str, Any] = {"run": None, "base_model": None, "parent": None, "descent": "fine_tuned_from"}

    def new() -> NewModel:
        return model_by_hand(registry, "other", name, **options, metrics=())

    if name in ("sums@1", base_model):
        with pytest.raises(InputError, match=name):
            new()
    else:
        found = new()
        path = str(Path(name).resolve()) if state is None else state
        assert (found.artifact.path, found.base_model) == (path, base_model)


@pytest.mark.parametrize("name", ["runs/first", "runs/both"])
def test_a_served_run_answers_with_what_is_named(name: str, registry: ModelRegistry) -> None:
    del registry
    assert named_weights([name], None) == ["--run", f"{name}={SAMPLER}"]


def test_samplers_are_opened_in_one_place() -> None:
    """Would catch a place that opens what it took a name for by itself, and so is in none of these tables."""
    source = Path(weights.__file__).parents[1]
    files = [file for room in ("algorithms", "recipes", "workflows") for file in (source / room).rglob("*.py")]
    assert [file.name for file in files if ".create_sampling_client" in file.read_text("utf-8")] == ["second_model.py"]
