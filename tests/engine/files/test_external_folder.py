"""External weights as the tools of tinker-cookbook read them."""

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec
from tests.engine.conftest import noise
from tests.engine.families import save_family
from tests.engine.test_export import assert_all_near, distance, load_base, logprobs_from, logprobs_of

weights: Any = pytest.importorskip("tinker_cookbook.weights", reason="needs tinker-cookbook, which `make` installs")

HEADLESS = LoraSpec(rank=4, train_unembed=False)


def trained(base: str, spec: LoraSpec, folder: Path) -> list[Tensor]:
    """Save an adapter with random weights as external ones; return the engine's logprobs under it."""
    engine = TorchEngine(base_models=[base], precision="float32")
    engine.create_model("m", base, spec)
    params = engine._model("m").params
    params.add_(noise(params, spec.rank), alpha=0.05)
    engine.save_external("m", folder, base_name=base)
    return logprobs_of(engine)


def built(base: str, adapter: Path, output: Path) -> Any:
    """The model that upstream makes of a base model's folder and an adapter's."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        weights.build_hf_model(base_model=base, adapter_path=str(adapter), output_path=str(output))
    return load_base(str(output))


@pytest.mark.parametrize(
    ("family", "tied", "spec"),
    [
        ("llama", False, LoraSpec(rank=4)),
        ("qwen3", True, HEADLESS),
        ("qwen3_moe", False, LoraSpec(rank=4)),
        ("qwen3_moe", True, HEADLESS),
        ("deepseek_v3", False, LoraSpec(rank=4)),
        ("gpt_oss", False, LoraSpec(rank=4)),
        ("qwen3_vl", True, HEADLESS),
        ("kimi_k25", False, LoraSpec(rank=4)),
    ],
)
def test_upstream_builds_what_was_trained(family: str, tied: bool, spec: LoraSpec, tmp_path: Path) -> None:
    """Would catch a name that upstream does not know, gate and up of experts exchanged, and a scaling applied twice."""
    base = save_family(tmp_path / "base", family, tie_word_embeddings=tied)
    expected = trained(base, spec, tmp_path / "adapter")
    assert distance(logprobs_from(load_base(base)), expected) > 0.5, "the adapter changes nothing"
    assert_all_near(logprobs_from(built(base, tmp_path / "adapter", tmp_path / "built")), expected)


def test_upstream_changes_both_ends_of_shared_embeddings(tmp_path: Path) -> None:
    """Where input and output share their weights, upstream adds what the output projection learned to both, as the docs
    say. Would catch a base that it refuses.
    """
    base = save_family(tmp_path / "base", "qwen3", tie_word_embeddings=True)
    trained(base, LoraSpec(rank=4, train_attn=False, train_mlp=False), tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    a_RI, b_OR = (tensors[f"base_model.model.model.unembed_tokens.lora_{one}.weight"] for one in "AB")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    shared: nn.Parameter = model.get_input_embeddings().weight
    shared.data += 32 / 4 * b_OR @ a_RI
    assert_all_near(logprobs_from(built(base, tmp_path / "adapter", tmp_path / "built")), logprobs_from(model))


def test_peft_refuses_what_it_would_leave_out(tmp_path: Path) -> None:
    """`peft` says nothing of matrices that it does not know. Would catch a config under which it applies the others."""
    base = save_family(tmp_path / "base", "llama")
    trained(base, LoraSpec(rank=4), tmp_path / "adapter")
    with pytest.raises(KeyError, match="peft_type"):
        PeftModel.from_pretrained(load_base(base), str(tmp_path / "adapter"))
    expected = trained(base, HEADLESS, tmp_path / "headless")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(load_base(base), str(tmp_path / "headless")).eval()
    assert_all_near(logprobs_from(model), expected)
    assert json.loads((tmp_path / "headless" / "adapter_config.json").read_text())["peft_type"] == "LORA"
