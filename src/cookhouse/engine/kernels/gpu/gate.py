# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The gate between the two matrix products of an MLP. All arithmetic is fp32."""

import triton
import triton.language as tl
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch

_BLOCK = 1024
_NUM_WARPS = 4
"""A thread holds 8 numbers of each tensor: one load of 16 bytes in bf16."""


def gate(gate: Tensor, up: Tensor, size: int, y: Tensor) -> None:
    """Write silu(gate) · up to y."""
    launch(gate_kernel, (triton.cdiv(size, _BLOCK),), gate, up, y, size, BLOCK=_BLOCK, num_warps=_NUM_WARPS)


def gate_backward(gate: Tensor, up: Tensor, size: int, dy: Tensor, dgate: Tensor, dup: Tensor) -> None:
    """Write the gradients of gate and up, given that of y."""
    tensors = (gate, up, dy, dgate, dup)
    launch(gate_backward_kernel, (triton.cdiv(size, _BLOCK),), *tensors, size, BLOCK=_BLOCK, num_warps=_NUM_WARPS)


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
