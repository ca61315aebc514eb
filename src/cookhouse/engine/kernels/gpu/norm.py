# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""RMS norms: a program computes one row, which it reads once. All arithmetic is fp32."""

import triton
import triton.language as tl
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch


def norm(x: Tensor, weight: Tensor, eps: float, num_rows: int, size: int, y: Tensor) -> None:
    """Write x · weight / √(mean(x²) + eps) to y; the mean is that of a row of `size`."""
    block = triton.next_power_of_2(size)
    launch(norm_kernel, (num_rows,), x, weight, y, eps, SIZE=size, BLOCK=block, num_warps=_num_warps(block))


def norm_backward(x: Tensor, weight: Tensor, eps: float, num_rows: int, size: int, dy: Tensor, dx: Tensor) -> None:
    """Write the gradient of x, given that of y."""
    block = triton.next_power_of_2(size)
    arguments = (x, weight, dy, dx, eps)
    launch(norm_backward_kernel, (num_rows,), *arguments, SIZE=size, BLOCK=block, num_warps=_num_warps(block))


def _num_warps(block: int) -> int:
    """Enough that a thread holds 16 numbers of each row: two loads of 16 bytes in bf16, four in fp32."""
    return min(max(block // (32 * 16), 1), 32)


@triton.jit
def norm_kernel(x, weight, y, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    offsets = tl.program_id(0).to(tl.int64) * SIZE + columns
    values = tl.load(x + offsets, inside, 0.0).to(tl.float32)
    weights = tl.load(weight + columns, inside, 0.0).to(tl.float32)
    factor = inverse_rms(tl.sum(values * values, 0), SIZE, eps)
    tl.store(y + offsets, values * factor * weights, inside)


@triton.jit
def norm_backward_kernel(x, weight, dy, dx, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    offsets = tl.program_id(0).to(tl.int64) * SIZE + columns
    values = tl.load(x + offsets, inside, 0.0).to(tl.float32)
    weights = tl.load(weight + columns, inside, 0.0).to(tl.float32)
    gradients = tl.load(dy + offsets, inside, 0.0).to(tl.float32) * weights
    factor = inverse_rms(tl.sum(values * values, 0), SIZE, eps)
    shared = tl.sum(values * gradients, 0) / SIZE * factor * factor
    tl.store(dx + offsets, (gradients - values * shared) * factor, inside)


@triton.jit
def inverse_rms(sum_of_squares, SIZE: tl.constexpr, eps):
    # Rounded to nearest: Triton's own root and quotient are approximations.
    return tl.div_rn(1.0, tl.sqrt_rn(sum_of_squares / SIZE + eps))
