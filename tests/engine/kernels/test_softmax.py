"""Catches a softmax over the vocabulary that is not that of torch in float64, by the kernels of the CPU or of a GPU."""

import pytest
import torch
from torch import Tensor

from cookhouse.engine.kernels.softmax import log_sum_exp, logits_gradient
from tests.engine.numerics import ROUNDING, assert_same, random

pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def _logits(num_rows: int, size: int, dtype: torch.dtype, device: str) -> Tensor:
    return 20 * random(num_rows, size, dtype=dtype, device=device)


@pytest.mark.parametrize("size", [3, 3000, 9001])
def test_normalizer(dtype: torch.dtype, size: int, kernel_device: str) -> None:
    """The largest size is more than what a GPU's program reads at once, and not a multiple of that."""
    logits_CV = _logits(4, size, dtype, kernel_device)
    got_C = log_sum_exp(logits_CV)
    assert got_C.dtype == torch.float64
    # A few units of fp32 of the sum, whatever the size of the logits.
    torch.testing.assert_close(got_C, torch.logsumexp(logits_CV.double(), -1), rtol=0, atol=8 * ROUNDING)


def test_normalizer_of_one_likely_token(dtype: torch.dtype, kernel_device: str) -> None:
    """Would catch a sum that loses what is small, and tokens that cannot be (minus infinity) made no number."""
    logits_CV = torch.full((1, 20000), -12.0, dtype=dtype, device=kernel_device)
    logits_CV[0, 7] = 0.0
    logits_CV[0, 9000:] = float("-inf")
    want_C = torch.logsumexp(logits_CV.double(), -1)
    # On a CPU a thousand numbers at a time are added in fp32, in 16 lanes: each rounds some 64 times, all the same way.
    torch.testing.assert_close(log_sum_exp(logits_CV), want_C, rtol=0, atol=80 * ROUNDING)


@pytest.mark.parametrize("size", [3000, 9001])
def test_gradient(dtype: torch.dtype, size: int, kernel_device: str) -> None:
    """Targets that share a row, or a token; rows without any."""
    logits_CV = _logits(4, size, dtype, kernel_device)
    rows_M, tokens_M = (torch.tensor(t, device=kernel_device) for t in ([0, 0, 0, 2], [5, 5, size - 1, 0]))
    weights_M = torch.tensor([0.5, -2.0, 1.0, 3.0], device=kernel_device)
    exact_CV = logits_CV.double().requires_grad_()
    loss = (torch.log_softmax(exact_CV, -1)[rows_M, tokens_M] * weights_M).sum()
    (want_CV,) = torch.autograd.grad(loss, exact_CV)
    assert_same(logits_gradient(logits_CV.clone(), rows_M, tokens_M, weights_M), want_CV, dtype)


def test_what_is_no_number_stays_so(dtype: torch.dtype, kernel_device: str) -> None:
    """A loss that is not finite is told by its value: a kernel must not turn it into one that is."""
    logits_CV = _logits(2, 300, dtype, kernel_device)
    logits_CV[0, 40] = float("nan")
    assert log_sum_exp(logits_CV).isnan().tolist() == [True, False]


def test_no_rows(dtype: torch.dtype, kernel_device: str) -> None:
    logits_CV = _logits(0, 300, dtype, kernel_device)
    nothing = torch.zeros(0, dtype=torch.int64, device=kernel_device)
    assert log_sum_exp(logits_CV).shape == (0,)
    assert logits_gradient(logits_CV, nothing, nothing, nothing.float()).shape == (0, 300)
