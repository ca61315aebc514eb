"""Catches what only shows on a GPU: its rounding, offsets beyond 32 bits, and results that differ from time to time."""

import pytest
import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.fused import RmsNorm, SiluGate
from cookhouse.engine.kernels.softmax import log_sum_exp, logits_gradient
from tests.engine.numerics import random

pytestmark = pytest.mark.gpu


def _needs_gigabytes(count: int) -> None:
    if torch.cuda.mem_get_info()[0] < count * 2**30:
        pytest.skip(f"needs {count} GiB of free GPU memory")


def test_there_are_kernels() -> None:
    """Would catch Triton failing to compile here, when torch would quietly take over."""
    assert kernels_for(torch.zeros(1, device="cuda"), "norm", "rotate", "gate", "log_sum_exp") is not None


def test_bf16_is_rounded_to_nearest() -> None:
    x = random(500, 1000, dtype=torch.bfloat16, device="cuda")
    weight = torch.ones(1000, dtype=torch.bfloat16, device="cuda")
    y = RmsNorm.apply(x, weight, 1e-6, kernels_for(x))  # type: ignore[no-untyped-call]
    wide = x.double()
    want = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()
    # What lies within fp32's error of the middle between two numbers of bf16 may fall to either side.
    assert float((y != want).float().mean()) < 1e-3


def test_more_numbers_than_32_bits_count() -> None:
    """Would read and write elsewhere, or fault."""
    _needs_gigabytes(40)
    logits_CV = torch.zeros(2**14 + 1, 2**17, dtype=torch.bfloat16, device="cuda")
    logits_CV[-1] = random(2**17, dtype=torch.bfloat16, device="cuda")
    last_V = logits_CV[-1].double()
    sums_C = log_sum_exp(logits_CV)
    torch.testing.assert_close(sums_C[-1], last_V.logsumexp(0), rtol=0, atol=1e-6)
    row_M, token_M, dlogprobs_M = (torch.tensor([n], device="cuda") for n in (2**14, 2**17 - 1, 1.0))
    gradient_CV = logits_gradient(logits_CV, row_M, token_M, dlogprobs_M)
    want_V = -last_V.softmax(0)
    want_V[-1] += 1
    torch.testing.assert_close(gradient_CV[-1].double(), want_V, rtol=1e-2, atol=1e-6)
    assert not gradient_CV[:-1].any()
    y = SiluGate.apply(logits_CV, logits_CV + 1, kernels_for(logits_CV))  # type: ignore[no-untyped-call]
    want_V = torch.nn.functional.silu(logits_CV[-1].double()) * (logits_CV[-1] + 1).double()
    torch.testing.assert_close(y[-1].double(), want_V, rtol=1e-2, atol=1e-6)


def test_a_gradient_is_the_same_each_time() -> None:
    """Would catch targets of a token that are added in the order in which programs come by."""
    logits_CV = random(40, 50000, dtype=torch.float32, device="cuda")
    rows_M = torch.arange(40, device="cuda").repeat_interleave(50)
    tokens_M = torch.arange(2000, device="cuda") % 7

    def run() -> Tensor:
        return logits_gradient(logits_CV.clone(), rows_M, tokens_M, random(2000, dtype=torch.float32, device="cuda"))

    assert torch.equal(run(), run())
