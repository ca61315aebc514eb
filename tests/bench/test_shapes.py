"""Catches a shape that is not that of the model it is named after."""

from pathlib import Path

import pytest
from bench.shapes import QWEN3_SHAPES, make_random_model
from transformers import AutoTokenizer, Qwen3Config

from cookhouse.engine.model.pretrained import num_parameters, read_model


@pytest.mark.parametrize(
    ("name", "billions"), [("qwen3-0.6b", 0.596), ("qwen3-1.7b", 1.721), ("qwen3-4b", 4.022), ("qwen3-8b", 8.191)]
)
def test_shapes_have_the_published_number_of_weights(name: str, billions: float, tmp_path: Path) -> None:
    Qwen3Config(**QWEN3_SHAPES[name]).save_pretrained(tmp_path)
    assert num_parameters(str(tmp_path)) / 1e9 == pytest.approx(billions, abs=5e-4)


@pytest.mark.parametrize(("precision", "shape"), [("float32", "128x1x300"), ("bfloat16", "qwen3-0.6b")])
def test_a_random_model_can_be_loaded(
    precision: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch weights in another precision than is said, and a folder without a tokenizer."""
    small = {**QWEN3_SHAPES["qwen3-0.6b"], "num_hidden_layers": 1, "vocab_size": 300}
    monkeypatch.setattr("bench.shapes.QWEN3_SHAPES", {"qwen3-0.6b": small})
    make_random_model(shape, tmp_path / "model", "cpu")
    folder = str(tmp_path / "model")
    weights = {str(weight.dtype) for weight in read_model(folder, "auto").parameters()}  # type: ignore[arg-type]
    assert weights == {f"torch.{precision}"}
    assert AutoTokenizer.from_pretrained(folder)("abc")["input_ids"]
