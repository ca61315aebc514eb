"""Catches a state saved between passes and their step from which a run goes on otherwise than if nothing had been."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, DamagedError, ForwardBackward, LoraSpec
from tests.engine.conftest import random_datums

SPECS = pytest.mark.parametrize("spec", [LoraSpec(rank=4, seed=3), LoraSpec(rank=0)], ids=["adapter", "full"])
ADAM = AdamStep(learning_rate=0.01)


@pytest.fixture(params=["float32", "bfloat16"])
def new_engine(request: pytest.FixtureRequest, qwen3_folder: str) -> Callable[[], TorchEngine]:
    return lambda: TorchEngine(base_models=[qwen3_folder], precision=request.param)


def run_passes(engine: TorchEngine, *seeds: int) -> None:
    for seed in seeds:
        request = ForwardBackward(model_id="m", data_D=random_datums([20, 11, 33], seed), loss_fn="cross_entropy")
        (output,) = engine.forward_backward([request])
        assert not isinstance(output, Exception), output


def all_of(engine: TorchEngine) -> list[torch.Tensor]:
    model = engine._model("m")
    return [
        t.clone() for t in (model.params, model.adam_m, model.adam_v, model.gradient, torch.tensor(model.num_steps))
    ]


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def load(engine: TorchEngine, base_model: str, spec: LoraSpec, folder: Path, *, with_gradient: bool = True) -> None:
    engine.load_state("m", base_model, spec, folder, with_optimizer=True, with_gradient=with_gradient)


@SPECS
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_run_goes_on_between_its_passes_and_their_step(
    new_engine: Callable[[], TorchEngine], qwen3_folder: str, spec: LoraSpec, tmp_path: Path, *, is_copied: bool
) -> None:
    """Would catch a gradient that is rounded, left out or of a later moment."""
    engine, folder = new_engine(), tmp_path / "s"
    engine.create_model("m", qwen3_folder, spec)
    run_passes(engine, 0, 1)
    engine.optim_step("m", ADAM)
    run_passes(engine, 2, 3)
    copied = engine.copy_state("m", with_optimizer=True, with_gradient=True) if is_copied else None
    if copied is None:
        engine.save_state("m", folder, with_optimizer=True, with_gradient=True)
    run_passes(engine, 4)
    engine.optim_step("m", ADAM)
    run_passes(engine, 5)
    expected = all_of(engine)
    if copied is not None:
        copied(folder)
    load(engine, qwen3_folder, spec, folder)  # over itself, whose own gradient goes
    for another in (engine, new_engine()):
        if another is not engine:
            load(another, qwen3_folder, spec, folder)
        run_passes(another, 4)
        another.optim_step("m", ADAM)
        run_passes(another, 5)
        assert_same(all_of(another), expected)


@SPECS
def test_a_gradient_is_loaded_where_it_is_asked_for_and_there(
    engine: TorchEngine, qwen3_folder: str, spec: LoraSpec, tmp_path: Path
) -> None:
    """Would catch a gradient in what a tenant resumes from, a state of an older version that is refused, and zeros that
    take a third more of the disk.
    """
    engine.create_model("m", qwen3_folder, spec)
    engine.save_state("m", tmp_path / "none", with_optimizer=True, with_gradient=True)
    assert not [path for path in (tmp_path / "none").iterdir() if path.name.startswith("gradient")]
    old = tmp_path / "none" / "adapter.json"
    manifest = json.loads(old.read_text())
    assert manifest.pop("has_gradient") is False
    old.write_text(json.dumps(manifest))
    run_passes(engine, 0)
    engine.save_state("m", tmp_path / "some", with_optimizer=True, with_gradient=True)
    engine.save_state("m", tmp_path / "left-out", with_optimizer=True)
    for name, with_gradient in (("none", True), ("left-out", True), ("some", False)):
        load(engine, qwen3_folder, spec, tmp_path / name, with_gradient=with_gradient)
        assert not engine._model("m").gradient.any()
        assert not engine._model("m").has_gradient
    load(engine, qwen3_folder, spec, tmp_path / "some")
    assert engine._model("m").gradient.any()
    engine.optim_step("m", ADAM)
    engine.save_state("m", tmp_path / "stepped", with_optimizer=True, with_gradient=True)
    assert json.loads((tmp_path / "stepped" / "adapter.json").read_text())["has_gradient"] is False


@SPECS
def test_a_gradient_that_is_gone_is_said(
    engine: TorchEngine, qwen3_folder: str, spec: LoraSpec, tmp_path: Path
) -> None:
    """Would catch a step over nothing after a restart from a folder that has lost a file."""
    engine.create_model("m", qwen3_folder, spec)
    engine.save_state("m", tmp_path / "s", with_optimizer=True, with_gradient=True)
    manifest = tmp_path / "s" / "adapter.json"
    manifest.write_text(manifest.read_text().replace('"has_gradient": false', '"has_gradient": true'))
    before = all_of(engine)
    with pytest.raises(DamagedError, match="should hold a gradient"):
        load(engine, qwen3_folder, spec, tmp_path / "s")
    assert_same(all_of(engine), before)


@SPECS
def test_a_state_comes_back_whatever_its_values(
    engine: TorchEngine, qwen3_folder: str, spec: LoraSpec, tmp_path: Path
) -> None:
    """Would catch a run that is lost at a restart since its learning rate was too high: its moments may be infinite."""
    engine.create_model("m", qwen3_folder, spec)
    run_passes(engine, 0)
    engine._model("m").adam_v[3] = math.inf
    before = all_of(engine)
    engine.save_state("m", tmp_path / "s", with_optimizer=True, with_gradient=True)
    engine.delete_model("m")
    load(engine, qwen3_folder, spec, tmp_path / "s")
    assert_same(all_of(engine), before)
