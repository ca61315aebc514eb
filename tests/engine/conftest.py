"""Small random models of the real architectures, with a byte-level tokenizer, in folders."""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec, TrainingDatum
from cookhouse.engine.kernels.cpu import cpu_kernels
from tests.engine import interpreter

if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton"):
    interpreter.mend()

VOCAB_SIZE = 264


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def save_model(folder: Path, config: Any, seed: int = 0) -> str:
    """Write a random model of a config, weights wide enough that its outputs are far from uniform."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.08)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def save_tokenizer(folder: Path) -> None:
    """Write the byte-level tokenizer that goes with every test model."""
    _byte_tokenizer().save_pretrained(folder)


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer Qwen3 with grouped key-value heads and tied embeddings."""
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        eos_token_id=256,
    )
    return save_model(tmp_path_factory.mktemp("qwen3"), config)


@pytest.fixture(params=["cpu", "gpu"])
def kernel_device(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels under test compute: those of the CPU there, those of a GPU on one, or on the CPU if there is none.

    Triton's interpreter runs them then, and rounds to bf16 toward zero, which a GPU does not.
    """
    if request.param == "cpu":
        if cpu_kernels() is None:
            pytest.skip("no C++ compiler")
        return "cpu"
    pytest.importorskip("triton")
    if device == "cpu":
        monkeypatch.setattr(
            "cookhouse.engine.kernels.choice.cpu_kernels",
            import_module("cookhouse.engine.kernels.gpu.functions").GpuKernels,
        )
    return device


@pytest.fixture
def engine(qwen3_folder: str) -> TorchEngine:
    """An fp32 engine with the Qwen3 model loaded, on the GPU if there is one that the tests may see."""
    return TorchEngine(base_models=[qwen3_folder], precision="float32")


@pytest.fixture
def add_model(engine: TorchEngine, qwen3_folder: str) -> Callable[..., str]:
    """Create a model whose adapter already differs from zero, so that every gradient is seen."""

    def add(model_id: str, *, rank: int = 4, seed: int = 0, **spec: bool) -> str:
        engine.create_model(model_id, qwen3_folder, LoraSpec(rank=rank, seed=seed, **spec))
        adapter = engine._model(model_id)
        adapter.params.add_(noise(adapter.params, seed), alpha=0.05)
        return model_id

    return add


def noise(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Normal numbers in the shape of a tensor and where it is, the same ones on any device."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like.device)


def random_datums(lengths: list[int], seed: int = 0) -> list[TrainingDatum]:
    """Datums of random tokens, targets and weights, some of them negative or zero."""
    rng = np.random.default_rng(seed)
    return [
        TrainingDatum(
            tokens_T=rng.integers(0, VOCAB_SIZE, length),
            loss_fn_inputs={
                "target_tokens": rng.integers(0, VOCAB_SIZE, length),
                "weights": rng.uniform(-0.5, 1.0, length).astype(np.float32) * (rng.random(length) < 0.7),
            },
        )
        for length in lengths
    ]
