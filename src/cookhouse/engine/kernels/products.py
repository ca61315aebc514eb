"""Matrix products: in fp32 by the library that computes them best on this processor, in bf16 on a CPU as sampling does.

Torch multiplies in fp32 through MKL, which uses AVX-512 on Intel's processors alone. On others that have it oneDNN,
which comes with torch as well, is twice as fast from some size on, in fp32 throughout. Which of both computes depends
on the processor and on sizes, never on a measurement, so that a run gets the same bits each time.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.rows import rows_kernels, rows_linear
from cookhouse.engine.switches import is_on

_MIN_PRODUCTS = 2_000_000
_MIN_ROWS = 16
"""Multiplications, and rows, from which oneDNN is ahead: a call costs it 5 µs more, and few rows leave it idle."""


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """X Wᵀ + bias, of matrices of any strides. In bf16 on a CPU a row's result is what sampling has, to the bit."""
    if _is_for_onednn(x_NI, weight_OI):
        return _computed(_onednn_linear, x_NI, weight_OI, bias_O)
    if rows_kernels(x_NI, weight_OI) is not None:
        return _computed(_rows_linear, x_NI, weight_OI, bias_O)
    return torch.nn.functional.linear(x_NI, weight_OI, bias_O)


def wide_linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """As `linear`, in bf16 on a CPU as fp32: not rounded; on a GPU if it is asked for. Not differentiable there."""
    kernels = rows_kernels(x_NI, weight_OI)
    if kernels is not None:
        return rows_linear(kernels, x_NI, weight_OI, bias_O, is_wide=True)[0]
    if not can_widen(x_NI):
        return linear(x_NI, weight_OI, bias_O)
    y_NO = _widened(x_NI, weight_OI.T)
    return y_NO if bias_O is None else y_NO.add_(bias_O)


def matmul(left_NK: Tensor, right_KM: Tensor) -> Tensor:
    """The product of two matrices of any strides."""
    right_MK = right_KM.T
    if _is_for_onednn(left_NK, right_MK):
        return _computed(_onednn_linear, left_NK, right_MK, None)
    return left_NK @ right_KM


def wide_matmul(left_NK: Tensor, right_KM: Tensor) -> Tensor:
    """As `matmul`, on a GPU as fp32 if it is asked for: not rounded to bf16. Not differentiable there."""
    return _widened(left_NK, right_KM) if can_widen(left_NK) else matmul(left_NK, right_KM)


def can_widen(x: Tensor) -> bool:
    """True if products of a GPU with this are to be as fp32."""
    return x.device.type == "cuda" and x.dtype == torch.bfloat16 and is_on("wide_products")


def _widened(left_NK: Tensor, right_KM: Tensor) -> Tensor:
    return torch.mm(left_NK, right_KM, out_dtype=torch.float32)


_Compute = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _computed(compute: _Compute, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in (x_NI, weight_OI, bias_O)):
        return compute(x_NI, weight_OI, bias_O)
    y_NO: Tensor = _Linear.apply(x_NI, weight_OI, bias_O, compute)  # type: ignore[no-untyped-call]
    return y_NO


def _onednn_linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    y_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return y_NO


def _rows_linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    kernels = rows_kernels(x_NI, weight_OI)
    assert kernels is not None
    return rows_linear(kernels, x_NI, weight_OI, bias_O)[0]


class _Linear(torch.autograd.Function):
    """The derivative that these operations lack."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, compute: _Compute) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return compute(x_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, dy_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            matmul(dy_NO, weight_OI) if needs_x else None,
            matmul(dy_NO.T, x_NI) if needs_weight else None,
            dy_NO.sum(0) if needs_bias else None,
            None,
        )


def _is_for_onednn(x_NI: Tensor, weight_OI: Tensor) -> bool:
    num_rows = x_NI.shape[0]
    return (
        x_NI.dtype == torch.float32
        and x_NI.device.type == "cpu"
        and num_rows >= _MIN_ROWS
        and num_rows * weight_OI.numel() >= _MIN_PRODUCTS
        and _is_onednn_ahead()
    )


@functools.cache
def _is_onednn_ahead() -> bool:
    """True if the processor has AVX-512 and MKL does not use it."""
    has_lanes = torch.backends.cpu.get_cpu_capability() == "AVX512"
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch gives it no types
    # Every build of torch with oneDNN has the operation, but its name is torch's own to change.
    is_offered = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_lanes and has_mkl and is_offered and _vendor() not in ("GenuineIntel", "")


def _vendor() -> str:
    """Of the processor, as Linux reports it; empty where nothing does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
