"""Values and gradients against those of a definition in float64, or of another way of computing them.

A tolerance is a multiple of what one operation in fp32 is off by: each machine, compiler and library adds in an order
of its own, and no machine's result is the measure of another's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

ROUNDING = 2.0**-24
"""What an operation in fp32 is off by at most, as a part of its result."""
_OPERATION = 32 * ROUNDING
"""Of one kernel: its sums, of hundreds of numbers in vectors of 8 or 16, round some tens of times in a row."""
MODEL = 256 * ROUNDING
"""Of a small model: each of some hundred operations in a row magnifies what those before it are off by. What a bug does
(another position, another adapter, a mask) is hundreds of times as large."""
_SUM = 256 * ROUNDING
"""Of a sum over the tokens of a batch, in which errors go either way."""
BF16_ROUNDING = 2.0**-8
"""What an operation in bf16 is off by, as a part of its result: the distance of two neighboring numbers of 8 bits."""
WAYS = {"fake": MODEL, "float32": MODEL, "bfloat16": 4 * BF16_ROUNDING}
"""Log-probabilities of one model, computed in two ways (sampler and trainer, other packing), as a part of the largest.

In bf16 each way rounds activations and logits, and the other way where its sums come out differently by a hair: of a
logit of 15, half a step is 0.03. Some four such steps add up; an offset, another adapter or another temperature is off
by the logprobs themselves.
"""
WAYS_OF_SUMS = {"fake": 1e-5, "float32": 1e-5, "bfloat16": 8 * BF16_ROUNDING}
"""The same for losses, margins and gradient norms: sums over tokens, in which errors go either way, of differences that
are smaller than what they are differences of."""

PORT_NATS = {"float32": 0.01, "bfloat16": 16 * WAYS["bfloat16"]}
"""What suites of ports allow, in nats per token: some of their tokens are as unlikely as exp(-16)."""


def random(*shape: int, dtype: torch.dtype, seed: int = 0, device: str = "cpu") -> Tensor:
    """Normal numbers, the same ones on any device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def assert_same(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    """`want` is best in float64, `dtype` that of the inputs: bf16 carries three digits, however exact it is added."""
    got, want = got.detach().double(), want.detach().double()
    tolerance = 1e-2 if dtype == torch.bfloat16 else _OPERATION
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * float(want.abs().max()))


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


def assert_logprobs_near(got: Any, want: Any, tolerance: float = MODEL) -> None:
    """Log-probabilities of one model, computed in two ways: relative to the largest, as logits that large were rounded.

    `tolerance` is for precisions other than fp32, as a part of the same.
    """
    largest = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * largest)


def assert_gradients_near(got: Tensor, want: Tensor) -> None:
    """Gradients of one model, computed in two ways: small ones are sums of large ones that cancel."""
    got, want = got.detach().cpu(), want.detach().cpu()
    torch.testing.assert_close(got, want, rtol=MODEL, atol=MODEL * float(want.abs().max()))


def near_sum(value: float) -> object:
    """Equal to a loss that is a sum over tokens, as far as rounding goes."""
    return pytest.approx(value, rel=_SUM, abs=_SUM * 10)
