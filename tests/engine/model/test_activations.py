"""Catches layers computed again that change what is learned, save nothing, or are computed again for nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import Segment
from cookhouse.engine.model import activations
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums
from tests.engine.families import FAMILIES, save_family


def _train(
    folder: str, max_activation_bytes: int | None, precision: str = "float32"
) -> tuple[list[float], torch.Tensor]:
    """Losses and gradients of two tenants that share a pass, and of a run of all weights where there may be one."""
    engine = TorchEngine(precision=precision, max_activation_bytes=max_activation_bytes)
    engine.create_model("a", folder, LoraSpec(rank=4, seed=1))
    engine.create_model("b", folder, LoraSpec(rank=9, seed=2, train_attn=False))
    ids = ["a", "b"]
    if not folder.endswith("gpt_oss"):
        engine.create_model("full", folder, LoraSpec(rank=0))
        ids.append("full")
    requests = [
        ForwardBackward(model_id=model_id, data_D=random_datums([50, 17, 30]), loss_fn="cross_entropy")
        for model_id in ids
    ]
    for model_id in ("a", "b"):
        engine._model(model_id).params.add_(0.01)
    outputs = engine.forward_backward(requests)
    layers = engine._bases[folder].activations._layers
    assert layers
    assert not any(layer.training for layer in layers)  # sampling keeps nothing anyway
    losses = [output.metrics["loss:sum"] for output in outputs if isinstance(output, ForwardBackwardOutput)]
    assert len(losses) == len(ids)
    return losses, torch.cat([engine._model(model_id).gradient for model_id in ids])


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_and_gradients_are_the_same_to_the_bit(family: str, tmp_path: Path) -> None:
    folder = save_family(tmp_path / family, family)
    losses, gradient = _train(folder, 2**40)
    again_losses, again_gradient = _train(folder, 0)
    assert again_losses == losses
    assert torch.equal(again_gradient, gradient)


def test_bf16_is_the_same_to_the_bit(qwen3_folder: str) -> None:
    losses, gradient = _train(qwen3_folder, 2**40, "bfloat16")
    again_losses, again_gradient = _train(qwen3_folder, 0, "bfloat16")
    assert again_losses == losses
    assert torch.equal(again_gradient, gradient)


def _planned(engine: TorchEngine, folder: str, num_tokens: int) -> int:
    base = engine._bases[folder]
    adapter = engine._model("m")
    assert isinstance(adapter, Adapter)
    segment = Segment(start=0, stop=num_tokens, weights=adapter.weights(torch.float32))
    return base.activations.plan(num_tokens, 4 * 64, [segment])


def test_only_as_many_layers_as_do_not_fit_compute_again(engine: TorchEngine, qwen3_folder: str) -> None:
    """Would catch a plan that ignores the size of the pass, or gives up all layers where one suffices."""
    engine.create_model("m", qwen3_folder, LoraSpec(rank=4))
    kept = engine._bases[qwen3_folder].activations
    assert _planned(engine, qwen3_folder, 100) == 0  # of the machine's memory
    (per_token,) = kept._bytes_per_token.values()
    # Of each layer at least: inputs of attention, MLP and down projection, queries, keys, values, attention's output.
    assert per_token >= 2 * 4 * (2 * 64 + 96 + 2 * 64 + 2 * 32)
    kept.max_bytes = int(100 * per_token)
    assert [_planned(engine, qwen3_folder, n) for n in (50, 100, 101, 150, 250)] == [0, 0, 1, 1, 2]
    kept.max_bytes = 0
    assert _planned(engine, qwen3_folder, 1) == 2


def test_the_limit_is_half_of_what_is_free(
    engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a machine that swaps because it was not asked, and one that computes again with room to spare."""
    engine.create_model("m", qwen3_folder, LoraSpec(rank=4))
    assert _planned(engine, qwen3_folder, 100) == 0
    (per_token,) = engine._bases[qwen3_folder].activations._bytes_per_token.values()
    num_tokens = int(2**27 / per_token)
    kept = engine._bases[qwen3_folder].activations
    monkeypatch.setattr(kept, "pass_bytes", lambda _: 2**28 + 2**20)
    assert _planned(engine, qwen3_folder, num_tokens) == 0
    monkeypatch.setattr(kept, "pass_bytes", lambda _: 2**28 - 2**20)
    assert _planned(engine, qwen3_folder, num_tokens) == 1


def test_a_pass_that_cannot_fit_is_refused_and_one_that_can_is_cut(
    engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch an engine that the system kills for one long sequence, and a request that is refused although its
    sequences fit one by one.
    """
    engine.create_model("m", qwen3_folder, LoraSpec(rank=4))
    kept, adapter = engine._bases[qwen3_folder].activations, engine._models["m"]
    assert isinstance(adapter, Adapter)
    monkeypatch.setattr(activations, "_SMALL_BYTES", 0)
    least = kept._computed(kept._measured(adapter.weights(torch.float32)), 4 * 64)
    monkeypatch.setattr(kept, "pass_bytes", lambda _: int(100.5 * least))

    def train(lengths: list[int]) -> object:
        request = ForwardBackward(model_id="m", data_D=random_datums(lengths), loss_fn="cross_entropy")
        return engine.forward_backward([request])[0]

    engine._budget_tokens = 400
    refused = train([101])
    assert isinstance(refused, InputError)
    message = (
        r"^a pass of 101 positions takes at least [\d.]+ MiB and [\d.]+ MiB of memory are free; shorten the longest"
    )
    assert re.match(message, str(refused))
    assert not adapter.has_gradient
    assert isinstance(train([100] * 4), ForwardBackwardOutput)


def test_a_pass_is_as_long_as_the_memory_of_a_gpu_allows(
    engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch passes that are cut for want of memory that is there, or by how much of it is free just now, and
    those that are too long because what a layer keeps for its adapter was left out.
    """
    base = engine._bases[qwen3_folder]
    kept, adapter = base.activations, base._smallest_adapter
    per_layer = 4 * (64 + 96 + 64)  # inputs of q_proj and gate_proj that the norm does not keep, and of down_proj
    assert kept._measured(adapter()) >= kept._measured(None) + 2 * per_layer
    monkeypatch.setattr(kept, "_device", torch.device("cpu"))
    assert kept.pass_tokens(4 * 64, adapter) == 4096
    least = 2 * 4 * 64 + kept._measured(adapter())  # inputs of two layers, and two halves of what is kept for them
    monkeypatch.setattr(kept, "_device", torch.device("cuda"))
    found = []
    for tokens in (40_000, 16_384, 16_383, 4_096, 1):
        monkeypatch.setattr(activations, "total_bytes", lambda _, n=tokens: 8 * n * least)
        found.append(kept.pass_tokens(4 * 64, adapter))
    assert found == [16_384, 16_384, 8_192, 4_096, 1_024]
    monkeypatch.setattr(kept, "_layers", kept._layers * 50)  # of which the kept parts are the many
    monkeypatch.setattr(activations, "total_bytes", lambda _: 8 / 3 * 16_383 * kept._measured(adapter()))
    assert kept.pass_tokens(1, adapter) == 8_192
    monkeypatch.setattr(activations, "total_bytes", lambda _: 8 / 3 * 1_000 * kept._measured(adapter()))
    assert kept.pass_tokens(1, adapter) == 4_096


_PEAK = """
import pathlib, re, sys
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, LoraSpec
from tests.engine.conftest import random_datums

engine = TorchEngine(device="cpu", precision="float32", max_activation_bytes=int(sys.argv[2]))
engine.create_model("m", sys.argv[1], LoraSpec(rank=2, train_unembed=False))

def train(num_sequences):
    request = ForwardBackward(model_id="m", data_D=random_datums([256] * num_sequences), loss_fn="cross_entropy")
    engine.forward_backward([request])
    # Not ru_maxrss: that begins with what the parent had when it forked.
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

small = train(1)
print(train(4) - small)
"""


@pytest.mark.slow
def test_the_peak_of_memory_is_lower(tmp_path: Path) -> None:
    """Would catch tensors that are kept by something else than what is computed again. Sixteen layers, 1024 tokens."""
    folder = save_family(tmp_path, "llama", num_hidden_layers=16, intermediate_size=512, hidden_size=128)

    def start(max_activation_bytes: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _PEAK, folder, str(max_activation_bytes)]
        # Every tensor gives its memory back at once: the heap keeps what was freed, and its holes are not the question.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def peak_kilobytes(running: subprocess.Popen[str]) -> int:
        output, _ = running.communicate()
        assert running.returncode == 0
        return int(output.split()[-1])

    # Kept: sixteen layers of about 10 kB a token. Computed again: one such layer and sixteen inputs of half a kilobyte.
    again, kept = (peak_kilobytes(running) for running in [start(0), start(2**40)])
    assert again < 0.4 * kept  # 0.18 when this was written
