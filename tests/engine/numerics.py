"""Values and gradients of an operation against those of its definition in float64."""

from collections.abc import Callable

import torch
from torch import Tensor


def random(*shape: int, dtype: torch.dtype, seed: int = 0, device: str = "cpu") -> Tensor:
    """Normal numbers, the same ones on any device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def assert_same(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    """`want` is in float64, `dtype` that of the inputs: bf16 carries three digits, however exact the arithmetic."""
    tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-6
    torch.testing.assert_close(
        got.detach().double(), want.detach(), rtol=tolerance, atol=tolerance * float(want.detach().abs().max())
    )


def check(function: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Compare an operation on inputs, and its gradients, with a reference on them in float64."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    y, wanted = function(*leaves), reference(*exact)
    assert_same(y, wanted, y.dtype)
    dy = random(*y.shape, dtype=y.dtype, seed=9, device=y.device.type)
    pairs = zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(wanted, exact, dy.double()), strict=True)
    for got, want in pairs:
        assert_same(got, want, y.dtype)
