# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Softmax over the vocabulary: a program computes one row.

Exponentials are fp32 and exact to 2e-7, their sum over the row is fp64. Each lane of a program keeps the largest number
that it has seen, and the sum of the exponentials of all that it has seen, less that: the loop waits for no other lane.

Legend: C positions, V vocabulary, M targets (several may share a position).
"""

import triton
import triton.language as tl
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch

_BLOCK = 8192
"""Numbers of a row on their way at once: 16 to a thread, and again those of the stages that are read ahead."""


def log_sum_exp(logits_CV: Tensor, num_rows: int, size: int, sums_C: Tensor) -> None:
    """Write the logarithm of the sum of the exponentials of each row, fp64."""
    block = _block(size)
    launch(log_sum_exp_kernel, (num_rows,), logits_CV, sums_C, size, BLOCK=block, num_warps=_num_warps(block))


def softmax_backward(
    logits_CV: Tensor, num_rows: int, size: int, first_C1: Tensor, tokens_M: Tensor, dlogprobs_M: Tensor
) -> None:
    """Write the gradient in place of the logits; targets [first[c], first[c + 1]) are those of row c."""
    block = _block(size)
    tensors = (logits_CV, first_C1, tokens_M, dlogprobs_M)
    launch(softmax_backward_kernel, (num_rows,), *tensors, size, BLOCK=block, num_warps=_num_warps(block))


def _block(size: int) -> int:
    block: int = triton.next_power_of_2(min(size, _BLOCK))
    return block


def _num_warps(block: int) -> int:
    return max(block // (32 * 16), 1)


@triton.jit
def log_sum_exp_kernel(logits, sums, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    most, total = _total(logits + row * size, size, BLOCK)
    tl.store(sums + row, most.to(tl.float64) + tl.log(total))


@triton.jit
def softmax_backward_kernel(logits, first, tokens, dlogprobs, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * size
    most, total = _total(logits, size, BLOCK)
    start_target = tl.load(first + row)
    stop_target = tl.load(first + row + 1)
    weight = 0.0
    for target in range(start_target, stop_target):
        weight += tl.load(dlogprobs + target)
    factor = -weight / total.to(tl.float32)
    columns = tl.arange(0, BLOCK)
    for start in range(0, size, BLOCK):
        inside = start + columns < size
        values = tl.load(logits + start + columns, inside, 0.0).to(tl.float32)
        gradients = _exponential(values - most) * factor
        # Targets are few, and those of a token are added in their order: no atomics, the same bits each time.
        for target in range(start_target, stop_target):
            column = (tl.load(tokens + target) - start).to(tl.int32)
            if (column >= 0) & (column < BLOCK):
                gradients += tl.where(columns == column, tl.load(dlogprobs + target), 0.0)
        tl.store(logits + start + columns, gradients, inside)


@triton.jit
def _total(logits, size, BLOCK: tl.constexpr):
    """The largest number of a row, and the sum of the exponentials of all less that, in fp64."""
    # Not infinite, so that less it nothing but what is no number is no number; what is minus infinity adds nothing.
    most = tl.full((BLOCK,), -3e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    columns = tl.arange(0, BLOCK)
    for start in tl.range(0, size, BLOCK, num_stages=3):
        values = tl.load(logits + start + columns, start + columns < size, float("-inf")).to(tl.float32)
        rise = values - most
        scale = _exponential(-tl.abs(rise))
        total = tl.where(rise > 0, total * scale + 1.0, total + scale)
        most = tl.where(rise > 0, values, most)
    largest = tl.max(most, 0)
    return largest, tl.sum((total * _exponential(most - largest)).to(tl.float64), 0)


@triton.jit
def _exponential(x):
    """exp(x) for x ≤ 0 to 2e-7 relative; below -85 that of -85, which is 1e-37. What is no number stays so."""
    # 2ⁿ exp(r), |r| ≤ ln 2 / 2: Triton's own takes 2 to the power of x · log2 e, whose rounding error grows with x.
    x = tl.where(x < -85.0, -85.0, x)
    n = tl.floor(x * 1.44269504 + 0.5)
    r = x - n * 0.693359375 + n * 2.12194440e-4
    return tl.exp2(r * 1.44269504) * tl.exp2(n)
