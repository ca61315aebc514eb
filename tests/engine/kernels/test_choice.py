"""Catches kernels that change what a model computes, and modules given them whose forward means something else."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.kernels.choice import _gpu_kernels, kernels_for
from tests.engine.conftest import noise, random_datums
from tests.engine.families import save_family
from tests.engine.numerics import assert_gradients_near, near_sum

_FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss")
# Those of a GPU take long where they are interpreted: few positions, once with norms of heads and once without.
_CASES = [
    *(("cpu", family, (40, 1, 23)) for family in _FAMILIES),
    *(("gpu", family, (6, 1, 3)) for family in ("llama", "qwen3")),
]


@pytest.mark.parametrize(("kernel_device", "family", "lengths"), _CASES, indirect=["kernel_device"])
def test_training_does_not_depend_on_the_kernels(
    kernel_device: str, family: str, lengths: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cookhouse.engine.model.activations._PROBE_TOKENS", 4)  # what it measures does not matter here
    folder = save_family(tmp_path, family)
    data_D = random_datums(list(lengths))

    def run() -> tuple[float, Tensor]:
        engine = TorchEngine(base_models=[folder], device=kernel_device, precision="float32")
        engine.create_model("m", folder, LoraSpec(rank=4))
        adapter = engine._model("m")
        adapter.params.add_(noise(adapter.params, 0), alpha=0.05)
        (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")])
        assert isinstance(output, ForwardBackwardOutput)
        return output.metrics["loss:sum"], adapter.gradient

    loss, gradient = run()
    monkeypatch.setattr("cookhouse.engine.kernels.choice.cpu_kernels", lambda: None)
    monkeypatch.setattr("cookhouse.engine.kernels.choice._gpu_kernels", lambda _: None)
    plain_loss, plain_gradient = run()
    assert loss == near_sum(plain_loss)
    assert_gradients_near(gradient, plain_gradient)


def test_kernels_are_asked_for_by_what_they_can_do(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a caller that is given kernels without its function, or for numbers that they cannot read."""
    x = torch.zeros(1, device=kernel_device)
    assert kernels_for(x, "norm", "log_sum_exp") is not None
    assert kernels_for(x, "norm", "no such function") is None
    assert kernels_for(x.half(), "norm") is None
    monkeypatch.setattr("cookhouse.engine.kernels.choice.cpu_kernels", lambda: None)
    monkeypatch.setattr("cookhouse.engine.kernels.choice._gpu_kernels", lambda _: None)
    assert kernels_for(x, "norm") is None


def test_a_gpu_on_which_triton_fails_is_used_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Triton needs a C compiler and Python's headers at its first launch, which many machines lack."""
    pytest.importorskip("triton")

    def fail(_: torch.device) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr("cookhouse.engine.kernels.gpu.functions.GpuKernels.check", staticmethod(fail))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert _gpu_kernels.__wrapped__(torch.device("cuda", 0)) is None
    assert "sampling go through torch, which is several times slower: Failed to find C compiler" in caplog.text
