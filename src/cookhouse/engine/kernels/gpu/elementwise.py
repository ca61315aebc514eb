# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Kernels between the matrix products of a layer: norms, rotary embeddings and the gate of an MLP; and the softmax over
the vocabulary. All arithmetic is fp32, but for sums of exponentials.

Of a norm a program computes one row, which it reads once. Of rotary embeddings it computes several heads of one
position, normalized before if they have a norm, in two halves that turn into each other.

Of a softmax a program computes one row. Exponentials are fp32 and exact to 2e-7, their sum over the row is fp64. Each
lane of a program keeps the largest number that it has seen, and the sum of the exponentials of all that it has seen,
less that: the loop waits for no other lane.

Legend: N packed positions, H heads, D features per head, C positions, V vocabulary, M targets (several may share a
position).
"""

import triton
import triton.language as tl
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch

_HEADS_TILE = 4096
"""Numbers of a program: 16 to a thread."""
_GATE_BLOCK = 1024
_GATE_WARPS = 4
"""A thread holds 8 numbers of each tensor: one load of 16 bytes in bf16."""
_SOFTMAX_BLOCK = 8192
"""Numbers of a row on their way at once: 16 to a thread, and again those of the stages that are read ahead."""


def norm(x: Tensor, weight: Tensor, eps: float, num_rows: int, size: int, y: Tensor) -> None:
    """Write x · weight / √(mean(x²) + eps) to y; the mean is that of a row of `size`."""
    block = triton.next_power_of_2(size)
    launch(norm_kernel, (num_rows,), x, weight, y, eps, SIZE=size, BLOCK=block, num_warps=_norm_warps(block))


def norm_backward(x: Tensor, weight: Tensor, eps: float, num_rows: int, size: int, dy: Tensor, dx: Tensor) -> None:
    """Write the gradient of x, given that of y."""
    block = triton.next_power_of_2(size)
    arguments = (x, weight, dy, dx, eps)
    launch(norm_backward_kernel, (num_rows,), *arguments, SIZE=size, BLOCK=block, num_warps=_norm_warps(block))


def _norm_warps(block: int) -> int:
    """Enough that a thread holds 16 numbers of each row: two loads of 16 bytes in bf16, four in fp32."""
    return min(max(block // (32 * 16), 1), 32)


@triton.jit
def norm_kernel(x, weight, y, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    offsets = tl.program_id(0).to(tl.int64) * SIZE + columns
    values = tl.load(x + offsets, inside, 0.0).to(tl.float32)
    weights = tl.load(weight + columns, inside, 0.0).to(tl.float32)
    factor = _inverse_rms(tl.sum(values * values, 0), SIZE, eps)
    tl.store(y + offsets, values * factor * weights, inside)


@triton.jit
def norm_backward_kernel(x, weight, dy, dx, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    offsets = tl.program_id(0).to(tl.int64) * SIZE + columns
    values = tl.load(x + offsets, inside, 0.0).to(tl.float32)
    weights = tl.load(weight + columns, inside, 0.0).to(tl.float32)
    gradients = tl.load(dy + offsets, inside, 0.0).to(tl.float32) * weights
    factor = _inverse_rms(tl.sum(values * values, 0), SIZE, eps)
    shared = tl.sum(values * gradients, 0) / SIZE * factor * factor
    tl.store(dx + offsets, (gradients - values * shared) * factor, inside)


@triton.jit
def _inverse_rms(sum_of_squares, SIZE: tl.constexpr, eps):
    # Rounded to nearest: Triton's own root and quotient are approximations.
    return tl.div_rn(1.0, tl.sqrt_rn(sum_of_squares / SIZE + eps))


def rotate(
    x_NHD: Tensor,
    weight_D: Tensor | None,
    eps: float,
    cos_ND: Tensor,
    sin_ND: Tensor,
    num_rows: int,
    num_heads: int,
    dim: int,
    y_NHD: Tensor,
) -> None:
    """Write x · cos + rotated(x) · sin to y, x normalized first if there is a weight; (a, b) rotated is (-b, a)."""
    tensors = (y_NHD, x_NHD, weight_D, cos_ND, sin_ND)
    _launch_rotation(rotate_kernel, tensors, eps, num_rows, num_heads, dim)


def rotate_backward(
    x_NHD: Tensor | None,
    weight_D: Tensor | None,
    eps: float,
    cos_ND: Tensor,
    sin_ND: Tensor,
    num_rows: int,
    num_heads: int,
    dim: int,
    dy_NHD: Tensor,
    dx_NHD: Tensor,
) -> None:
    """Write the gradient of x, given that of y; without a weight x is not read."""
    tensors = (dx_NHD, dy_NHD, x_NHD, weight_D, cos_ND, sin_ND)
    _launch_rotation(rotate_backward_kernel, tensors, eps, num_rows, num_heads, dim)


def _launch_rotation(
    kernel: triton.JITFunction, tensors: tuple[Tensor | None, ...], eps: float, num_rows: int, num_heads: int, dim: int
) -> None:
    block_d = triton.next_power_of_2(dim // 2)
    block_h = min(triton.next_power_of_2(num_heads), max(_HEADS_TILE // (2 * block_d), 1))
    num_warps = min(max(2 * block_h * block_d // (32 * 16), 1), 8)
    sizes = {"HEADS": num_heads, "DIM": dim, "BLOCK_H": block_h, "BLOCK_D": block_d}
    launch(kernel, (num_rows, triton.cdiv(num_heads, block_h)), *tensors, eps, **sizes, num_warps=num_warps)


@triton.jit
def rotate_kernel(
    y, x, weight, cos, sin, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first, columns, inside = _places(row, HEADS, DIM, BLOCK_H, BLOCK_D)
    second = first + DIM // 2
    a = tl.load(x + first, inside, 0.0).to(tl.float32)
    b = tl.load(x + second, inside, 0.0).to(tl.float32)
    if weight is not None:
        weight_a, weight_b = _halves(weight, columns, DIM)
        factor = _inverse_rms(tl.sum(a * a + b * b, 1), DIM, eps)[:, None]
        a = a * factor * weight_a
        b = b * factor * weight_b
    cos_a, cos_b = _halves(cos + row * DIM, columns, DIM)
    sin_a, sin_b = _halves(sin + row * DIM, columns, DIM)
    tl.store(y + first, a * cos_a - b * sin_a, inside)
    tl.store(y + second, b * cos_b + a * sin_b, inside)


@triton.jit
def rotate_backward_kernel(
    dx, dy, x, weight, cos, sin, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first, columns, inside = _places(row, HEADS, DIM, BLOCK_H, BLOCK_D)
    second = first + DIM // 2
    dy_a = tl.load(dy + first, inside, 0.0).to(tl.float32)
    dy_b = tl.load(dy + second, inside, 0.0).to(tl.float32)
    cos_a, cos_b = _halves(cos + row * DIM, columns, DIM)
    sin_a, sin_b = _halves(sin + row * DIM, columns, DIM)
    da = dy_a * cos_a + dy_b * sin_b
    db = dy_b * cos_b - dy_a * sin_a
    if weight is not None:
        a = tl.load(x + first, inside, 0.0).to(tl.float32)
        b = tl.load(x + second, inside, 0.0).to(tl.float32)
        weight_a, weight_b = _halves(weight, columns, DIM)
        da *= weight_a
        db *= weight_b
        factor = _inverse_rms(tl.sum(a * a + b * b, 1), DIM, eps)[:, None]
        shared = tl.sum(a * da + b * db, 1)[:, None] / DIM * factor * factor
        da = (da - a * shared) * factor
        db = (db - b * shared) * factor
    tl.store(dx + first, da, inside)
    tl.store(dx + second, db, inside)


@triton.jit
def _places(row, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    """Offsets (BLOCK_H, BLOCK_D) of the first halves of a program's heads, their columns, and which of them exist."""
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    columns = tl.arange(0, BLOCK_D)
    inside = (heads < HEADS)[:, None] & (columns < DIM // 2)[None, :]
    return (row * HEADS + heads)[:, None] * DIM + columns[None, :], columns, inside


@triton.jit
def _halves(vector, columns, DIM: tl.constexpr):
    """The two halves of DIM numbers, as rows (1, BLOCK_D) in fp32."""
    inside = columns < DIM // 2
    a = tl.load(vector + columns, inside, 0.0).to(tl.float32)
    b = tl.load(vector + DIM // 2 + columns, inside, 0.0).to(tl.float32)
    return a[None, :], b[None, :]


def gate(gate: Tensor, up: Tensor, size: int, y: Tensor) -> None:
    """Write silu(gate) · up to y."""
    launch(gate_kernel, (triton.cdiv(size, _GATE_BLOCK),), gate, up, y, size, BLOCK=_GATE_BLOCK, num_warps=_GATE_WARPS)


def gate_backward(gate: Tensor, up: Tensor, size: int, dy: Tensor, dgate: Tensor, dup: Tensor) -> None:
    """Write the gradients of gate and up, given that of y."""
    tensors = (gate, up, dy, dgate, dup)
    launch(
        gate_backward_kernel,
        (triton.cdiv(size, _GATE_BLOCK),),
        *tensors,
        size,
        BLOCK=_GATE_BLOCK,
        num_warps=_GATE_WARPS,
    )


@triton.jit
def gate_kernel(gate, up, y, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    g = tl.load(gate + offsets, inside, 0.0).to(tl.float32)
    u = tl.load(up + offsets, inside, 0.0).to(tl.float32)
    tl.store(y + offsets, g / (1.0 + tl.exp(-g)) * u, inside)


@triton.jit
def gate_backward_kernel(gate, up, dy, dgate, dup, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    g = tl.load(gate + offsets, inside, 0.0).to(tl.float32)
    u = tl.load(up + offsets, inside, 0.0).to(tl.float32)
    d = tl.load(dy + offsets, inside, 0.0).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-g))
    tl.store(dup + offsets, d * g * sigmoid, inside)
    tl.store(dgate + offsets, d * u * sigmoid * (1.0 + g * (1.0 - sigmoid)), inside)


def log_sum_exp(logits_CV: Tensor, num_rows: int, size: int, sums_C: Tensor) -> None:
    """Write the logarithm of the sum of the exponentials of each row, fp64."""
    block = _softmax_block(size)
    launch(log_sum_exp_kernel, (num_rows,), logits_CV, sums_C, size, BLOCK=block, num_warps=_softmax_warps(block))


def softmax_backward(
    logits_CV: Tensor, num_rows: int, size: int, first_C1: Tensor, tokens_M: Tensor, dlogprobs_M: Tensor
) -> None:
    """Write the gradient in place of the logits; targets [first[c], first[c + 1]) are those of row c."""
    block = _softmax_block(size)
    tensors = (logits_CV, first_C1, tokens_M, dlogprobs_M)
    launch(softmax_backward_kernel, (num_rows,), *tensors, size, BLOCK=block, num_warps=_softmax_warps(block))


def _softmax_block(size: int) -> int:
    block: int = triton.next_power_of_2(min(size, _SOFTMAX_BLOCK))
    return block


def _softmax_warps(block: int) -> int:
    return max(block // (32 * 16), 1)


@triton.jit
def log_sum_exp_kernel(logits, sums, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    most, total = _largest_and_total(logits + row * size, size, BLOCK)
    tl.store(sums + row, most.to(tl.float64) + tl.log(total))


@triton.jit
def softmax_backward_kernel(logits, first, tokens, dlogprobs, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * size
    most, total = _largest_and_total(logits, size, BLOCK)
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
def _largest_and_total(logits, size, BLOCK: tl.constexpr):
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
