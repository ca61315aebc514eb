# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Rotary embeddings of heads, normalized before if they have a norm. All arithmetic is fp32.

A program computes several heads of one position, in two halves that turn into each other.

Legend: N packed positions, H heads, D features per head.
"""

import triton
import triton.language as tl
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch
from cookhouse.engine.kernels.gpu.norm import inverse_rms

_TILE = 4096
"""Numbers of a program: 16 to a thread."""


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
    _launch(rotate_kernel, tensors, eps, num_rows, num_heads, dim)


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
    _launch(rotate_backward_kernel, tensors, eps, num_rows, num_heads, dim)


def _launch(
    kernel: triton.JITFunction, tensors: tuple[Tensor | None, ...], eps: float, num_rows: int, num_heads: int, dim: int
) -> None:
    block_d = triton.next_power_of_2(dim // 2)
    block_h = min(triton.next_power_of_2(num_heads), max(_TILE // (2 * block_d), 1))
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
        factor = inverse_rms(tl.sum(a * a + b * b, 1), DIM, eps)[:, None]
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
        factor = inverse_rms(tl.sum(a * a + b * b, 1), DIM, eps)[:, None]
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
