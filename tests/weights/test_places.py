"""Every place that asks for weights takes a name to mean the same: catches one that takes names apart by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cookhouse.cli.sampling.target import named_target
from cookhouse.recipes.eval import origin_of
from cookhouse.registry import Artifact, ModelRegistry, NewModel, open_registry
from cookhouse.settings import TrainingSettings
from cookhouse.training import FakeService, SessionSpec, open_session
from cookhouse.weights.names import find_weights
from cookhouse.weights.peft_folders import peft_path
from cookhouse.workflows.base.second_model import sampler_place

STATE, SAMPLER = "tinker://r/weights/last", "tinker://r/sampler_weights/last"
RENDERER = "role_colon"


def write_run(folder: Path, base_model: str) -> None:
    folder.mkdir(parents=True)
    config = {"recipe": "supervised", "config": {"model_name": base_model, "renderer_name": RENDERER}}
    (folder / "config.json").write_text(json.dumps(config))
    place = {"name": "last", "epoch": 0, "batch": 0, "step": 1, "final": True}
    (folder / "checkpoints.jsonl").write_text(
        json.dumps({**place, "state_path": STATE, "sampler_path": SAMPLER}) + "\n"
    )


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
    target = named_target(name)
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
