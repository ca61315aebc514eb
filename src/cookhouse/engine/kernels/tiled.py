"""The adapted linear layer on a CPU with a matrix unit, in bf16: base and adapters in one kernel each way.

Legend: N packed positions, I features in, O features out, R rank.
"""

from collections.abc import Iterator, Sequence
from ctypes import Array, addressof
from typing import Any, Protocol

import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import Kernels, kernels_for
from cookhouse.engine.kernels.cpu import TILE, LoraSegment

_MAX_WEIGHT = 2**20
"""Numbers of a frozen weight up to which its product on the way back is part of the kernel. It is packed anew in every
pass; what does not stay in a core's cache oneDNN multiplies faster. Of any size is the forward, which is sampling's."""


class TiledAdapters(Protocol):
    """The adapters of one site, as the kernel takes them."""

    def table(self) -> Array[LoraSegment]:
        """A row per segment; they ascend and do not overlap."""


def tiles_for(x: Tensor, weight_OI: Tensor) -> Kernels | None:
    """The kernels, where they have one for such a layer."""
    is_fit = x.dtype == weight_OI.dtype == torch.bfloat16 and weight_OI.is_contiguous()
    if not is_fit or any(size % TILE for size in weight_OI.shape):
        return None
    return kernels_for(x, "linear", "linear_backward")


class TiledProduct(torch.autograd.Function):
    """y = W x + b + scaling · B A x; backward adds the gradients of A and B straight to theirs, which are fp32."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, adapters: TiledAdapters, kernels: Kernels
    ) -> Tensor:
        x_NI, table = x_NI.contiguous(), adapters.table()
        y_NO, low = tiled_linear(kernels, table, x_NI, weight_OI, bias_O)
        ctx.save_for_backward(x_NI, weight_OI, low)
        ctx.table, ctx.kernels = table, kernels
        ctx.adapters = adapters  # what the table points at
        return y_NO

    @staticmethod
    def backward(ctx: Any, dy_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI, low = ctx.saved_tensors
        dy_NO = dy_NO.contiguous()
        if weight_OI.numel() <= _MAX_WEIGHT:
            dx_NI, weight = torch.empty_like(x_NI), weight_OI
        else:
            dx_NI, weight = dy_NO @ weight_OI, None
        shared = _shared(ctx.table, x_NI, weight)
        ctx.kernels("linear_backward", x_NI.dtype, *shared, low, dy_NO.shape[1], dy_NO, dx_NI)
        return dx_NI, None, None, None, None


def _shared(table: Array[LoraSegment], x_NI: Tensor, weight: Tensor | None) -> Sequence[Any]:
    """The arguments that both ways begin with."""
    return addressof(table), len(table), x_NI, *x_NI.shape, weight


def tiled_linear(
    kernels: Kernels,
    table: Array[LoraSegment],
    x_NI: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None,
    *,
    is_wide: bool = False,
) -> tuple[Tensor, Tensor]:
    """y, rounded or `is_wide` in fp32, and scaling · A x of each segment: (rows / 32, R, 32) with both rounded up."""
    low = x_NI.new_empty(_low_size(table))
    y_NO = x_NI.new_empty(len(x_NI), len(weight_OI), dtype=torch.float32 if is_wide else x_NI.dtype)
    shared = _shared(table, x_NI, weight_OI)
    kernels("wide_linear" if is_wide else "linear", x_NI.dtype, *shared, bias_O, len(weight_OI), low, y_NO)
    return y_NO, low


def turned_back(table: Array[LoraSegment], low: Tensor) -> Iterator[Tensor]:
    """Of each segment scaling · A x (rows, R), out of what `tiled_linear` gives."""
    start = 0
    for row in table:
        length, rank = int(row.stop - row.start), int(row.rank)
        num_blocks, width = -(-length // TILE), -(-rank // TILE) * TILE
        blocks = low[start : start + num_blocks * width * TILE].view(num_blocks, width, TILE)
        yield blocks.transpose(1, 2).reshape(-1, width)[:length, :rank]
        start += blocks.numel()


def _low_size(table: Array[LoraSegment]) -> int:
    """Numbers that the way back needs of A x: in whole tiles, transposed."""
    sizes = [(int(row.stop - row.start), int(row.rank)) for row in table]
    return sum(-(-length // TILE) * -(-rank // TILE) for length, rank in sizes) * TILE**2
