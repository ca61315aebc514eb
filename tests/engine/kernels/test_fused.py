"""Catches kernels, of the CPU or of a GPU, that compute something else than torch does, forward or backward."""

import pytest
import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.fused import RmsNorm, RotateHeads, SiluGate
from tests.engine.numerics import check, random

EPS = 1e-6

pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.to(x.dtype)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    y: Tensor = RmsNorm.apply(x, weight, EPS, kernels_for(x, "norm", "norm_backward"))  # type: ignore[no-untyped-call]
    return y


def _gate(gate: Tensor, up: Tensor) -> Tensor:
    y: Tensor = SiluGate.apply(gate, up, kernels_for(gate, "gate", "gate_backward"))  # type: ignore[no-untyped-call]
    return y


@pytest.mark.parametrize("size", [5, 64, 100])
def test_norm(dtype: torch.dtype, size: int, kernel_device: str) -> None:
    weight = random(size, dtype=dtype, seed=1, device=kernel_device)
    check(
        lambda x: _rms_norm(x, weight), lambda x: _norm(x, weight), random(7, size, dtype=dtype, device=kernel_device)
    )


@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize(("num_heads", "size"), [(3, 12), (3, 32), (1, 80), (70, 128)])
def test_rotated_heads(dtype: torch.dtype, num_heads: int, size: int, is_normed: bool, kernel_device: str) -> None:
    """The most heads are more than a GPU's program takes, and not a multiple of what it takes."""
    weight = random(size, dtype=dtype, seed=1, device=kernel_device) if is_normed else None
    cos, sin = (random(9, size, dtype=dtype, seed=seed, device=kernel_device) for seed in (2, 3))

    def reference(x: Tensor) -> Tensor:
        x = x if weight is None else _norm(x, weight)
        first, second = x.chunk(2, -1)
        return x * cos.double().unsqueeze(1) + torch.cat((-second, first), -1) * sin.double().unsqueeze(1)

    def function(x: Tensor) -> Tensor:
        kernels = kernels_for(x, "rotate", "rotate_backward")
        y: Tensor = RotateHeads.apply(x, weight, EPS, cos, sin, kernels)  # type: ignore[no-untyped-call]
        return y

    check(function, reference, random(9, num_heads, size, dtype=dtype, device=kernel_device))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of numpy, in Triton's interpreter
def test_gate_of_any_magnitude(dtype: torch.dtype, kernel_device: str) -> None:
    extremes = torch.tensor([-1e4, -200.0, -90.0, 90.0, 1e4])
    gate = torch.cat([random(1100, dtype=dtype), extremes.to(dtype)]).to(kernel_device)
    up = random(1105, dtype=dtype, seed=1, device=kernel_device)
    check(_gate, lambda gate, up: torch.nn.functional.silu(gate) * up, gate, up)


def test_what_is_no_number_stays_so(dtype: torch.dtype, kernel_device: str) -> None:
    """A loss that is not finite is told by its value: a kernel must not turn it into one that is."""
    x = torch.full((2, 40), float("nan"), dtype=dtype, device=kernel_device)
    assert _gate(x, x).isnan().all()
    assert _rms_norm(x, x[0]).isnan().all()


def test_no_rows(dtype: torch.dtype, kernel_device: str) -> None:
    """A grid of no programs is an error to CUDA."""
    x = torch.zeros(0, 40, dtype=dtype, device=kernel_device, requires_grad=True)
    y = _gate(_rms_norm(x, torch.ones(40, device=kernel_device)), x)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.shape == x.shape
