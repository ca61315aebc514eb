"""Matrix products in fp32, by the library that computes them best on this processor.

Torch multiplies in fp32 through MKL, which uses AVX-512 on Intel's processors alone. On others that have it oneDNN,
which comes with torch as well, is twice as fast from some size on, in fp32 throughout. Which of both computes depends
on the processor and on sizes, never on a measurement, so that a run gets the same bits each time.
"""

import functools
from pathlib import Path

import torch
from torch import Tensor

_MIN_PRODUCTS = 2_000_000
_MIN_ROWS = 16
"""Multiplications, and rows, from which oneDNN is ahead: a call costs it 5 µs more, and few rows leave it idle."""


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """X Wᵀ + bias, of matrices of any strides."""
    if _is_for_onednn(x_NI, weight_OI):
        y_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
        return y_NO
    return torch.nn.functional.linear(x_NI, weight_OI, bias_O)


def matmul(left_NK: Tensor, right_KM: Tensor) -> Tensor:
    """The product of two matrices of any strides."""
    return linear(left_NK, right_KM.T) if _is_for_onednn(left_NK, right_KM.T) else left_NK @ right_KM


def _is_for_onednn(x_NI: Tensor, weight_OI: Tensor) -> bool:
    num_rows = x_NI.shape[0]
    return (
        x_NI.dtype == torch.float32
        and x_NI.device.type == "cpu"
        and num_rows >= _MIN_ROWS
        and num_rows * weight_OI.numel() >= _MIN_PRODUCTS
        # Its operation has no derivative.
        and not (torch.is_grad_enabled() and (x_NI.requires_grad or weight_OI.requires_grad))
        and _is_onednn_ahead()
    )


@functools.cache
def _is_onednn_ahead() -> bool:
    """Whether the processor has AVX-512 and MKL does not use it."""
    is_able = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return is_able and torch.backends.mkl.is_available() and _vendor() not in ("GenuineIntel", "")


def _vendor() -> str:
    """Of the processor, as Linux tells it; empty where nothing does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
