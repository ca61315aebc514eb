"""Linear layers in bf16 on a CPU, as sampling computes them: a row is the same to the bit, alone or among others.

Legend: N rows, I features in, O features out, R rank.
"""

from ctypes import Array, addressof

import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import Kernels, kernels_for
from cookhouse.engine.kernels.cpu import LANES, LoraSegment
from cookhouse.engine.kernels.tiled import tiled_linear, tiles_for, turned_back

_TILED_ROWS = 64
"""Rows from which packing the weight for the matrix unit pays. It multiplies to the same bits as it lies."""
_NO_ADAPTERS = (LoraSegment * 0)()


def rows_kernels(x_NI: Tensor, weight_OI: Tensor) -> Kernels | None:
    """Kernels that multiply so; None where there are none."""
    is_fit = x_NI.dtype == weight_OI.dtype == torch.bfloat16 and weight_OI.is_contiguous()
    return kernels_for(x_NI, "rows_linear") if is_fit else None


def rows_linear(
    kernels: Kernels,
    x_NI: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None,
    table: Array[LoraSegment] = _NO_ADAPTERS,
    *,
    is_wide: bool = False,
) -> tuple[Tensor, Tensor]:
    """X Wᵀ + bias with the adapters of a table, rounded once or `is_wide` in fp32; and A x (N, R) of the rows that have
    one, in fp32, R rounded up.
    """
    x_NI = x_NI.contiguous()
    width = max((-(-int(row.rank) // LANES) * LANES for row in table), default=0)
    low_NR = torch.empty(len(x_NI), width)
    tiles = tiles_for(x_NI, weight_OI) if len(x_NI) >= _TILED_ROWS else None
    if tiles is not None:
        y_NO, turned = tiled_linear(tiles, table, x_NI, weight_OI, bias_O, is_wide=is_wide)
        for row, scaled_NR in zip(table, turned_back(table, turned), strict=True):
            low_NR[int(row.start) : int(row.stop), : int(row.rank)] = scaled_NR.float() / row.scaling
        return y_NO, low_NR
    y_NO = torch.empty(len(x_NI), len(weight_OI), dtype=torch.float32 if is_wide else x_NI.dtype)
    targets = (None, y_NO) if is_wide else (y_NO, None)
    sizes = (x_NI, *x_NI.shape, weight_OI, bias_O, len(weight_OI), low_NR, width)
    kernels("rows_linear", x_NI.dtype, addressof(table), len(table), *sizes, *targets)
    return y_NO, low_NR
