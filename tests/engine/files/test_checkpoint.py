"""Catches a resume that differs from never stopping, and a checkpoint that is half there or not ours."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.files import checkpoint
from cookhouse.engine.files.manifest import read_spec
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums

SPEC = LoraSpec(rank=4, seed=3)


def _train(engine: TorchEngine, model_id: str, steps: range) -> list[float]:
    losses = []
    for step in steps:
        request = ForwardBackward(model_id=model_id, data_D=random_datums([20, 11], step), loss_fn="cross_entropy")
        (output,) = engine.forward_backward([request])
        assert isinstance(output, ForwardBackwardOutput)
        losses.append(output.metrics["loss:sum"])
        engine.optim_step(model_id, AdamStep(learning_rate=0.01))
    return losses


def test_save_load_and_continue_equals_never_stopped_to_the_bit(
    engine: TorchEngine, qwen3_folder: str, tmp_path: Path
) -> None:
    engine.create_model("whole", qwen3_folder, SPEC)
    whole = _train(engine, "whole", range(6))
    engine.create_model("first", qwen3_folder, SPEC)
    first = _train(engine, "first", range(3))
    engine.save_state("first", tmp_path / "s", with_optimizer=True)
    engine.delete_model("first")
    engine.load_state("second", qwen3_folder, SPEC, tmp_path / "s", with_optimizer=True)
    assert first + _train(engine, "second", range(3, 6)) == whole
    assert torch.equal(engine._model("second").params, engine._model("whole").params)


def test_weights_alone_start_a_fresh_optimizer(engine: TorchEngine, qwen3_folder: str, tmp_path: Path) -> None:
    engine.create_model("m", qwen3_folder, SPEC)
    _train(engine, "m", range(2))
    engine.save_state("m", tmp_path / "weights", with_optimizer=False)
    engine.load_state("n", qwen3_folder, SPEC, tmp_path / "weights", with_optimizer=False)
    assert torch.equal(engine._model("n").params, engine._model("m").params)
    assert engine._model("n").num_steps == 0
    assert engine._model("n").adam_m.eq(0).all()
    with pytest.raises(InputError, match=r"holds no adam_m, adam_v"):
        engine.load_state("o", qwen3_folder, SPEC, tmp_path / "weights", with_optimizer=True)


def test_an_existing_folder_is_not_overwritten(engine: TorchEngine, qwen3_folder: str, tmp_path: Path) -> None:
    engine.create_model("m", qwen3_folder, SPEC)
    engine.save_state("m", tmp_path / "s", with_optimizer=True)
    with pytest.raises(InputError, match="exists"):
        engine.save_state("m", tmp_path / "s", with_optimizer=True)


def test_a_write_that_fails_leaves_nothing(
    engine: TorchEngine, qwen3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    engine.create_model("m", qwen3_folder, SPEC)
    with pytest.raises(OSError, match="No space left"):
        engine.save_state("m", tmp_path / "s", with_optimizer=True)
    assert list(tmp_path.iterdir()) == []


def _damage_shape(folder: Path) -> None:
    tensors = load_file(folder / "adapter.safetensors")
    save_file({name: tensor[:-1].clone() for name, tensor in tensors.items()}, folder / "adapter.safetensors")


def _damage_value(folder: Path) -> None:
    tensors = load_file(folder / "adapter.safetensors")
    tensors["params"][0] = torch.nan
    save_file(tensors, folder / "adapter.safetensors")


def _truncate(folder: Path) -> None:
    path = folder / "adapter.safetensors"
    path.write_bytes(path.read_bytes()[:200])


def _drop_manifest(folder: Path) -> None:
    (folder / "adapter.json").unlink()


def _not_an_object(folder: Path) -> None:
    (folder / "adapter.json").write_text("[1]")


@pytest.mark.parametrize("damage", [_damage_shape, _damage_value, _truncate, _drop_manifest, _not_an_object])
def test_damaged_checkpoints_are_refused_and_change_nothing(
    engine: TorchEngine, qwen3_folder: str, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    engine.create_model("m", qwen3_folder, SPEC)
    engine.save_state("m", tmp_path / "s", with_optimizer=True)
    before = engine._model("m").params.clone()
    damage(tmp_path / "s")
    with pytest.raises(InputError):
        engine.load_state("m", qwen3_folder, SPEC, tmp_path / "s", with_optimizer=True)
    assert torch.equal(engine._model("m").params, before)


def test_another_shape_is_refused(engine: TorchEngine, qwen3_folder: str, tmp_path: Path) -> None:
    engine.create_model("m", qwen3_folder, SPEC)
    engine.save_state("m", tmp_path / "s", with_optimizer=True)
    assert read_spec(tmp_path / "s") == (qwen3_folder, SPEC)
    with pytest.raises(InputError, match="another base model or adapter shape"):
        engine.load_state("n", qwen3_folder, LoraSpec(rank=5), tmp_path / "s", with_optimizer=True)
