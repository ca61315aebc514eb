"""The short causal convolution of a gated delta layer, channel by channel, then SiLU. Sums are fp32, oldest tap first.

Legend: N packed positions, C channels, W taps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import silu


@dataclass(frozen=True, slots=True)
class Earlier:
    """Inputs from before the rows of a pass, and which rows read them."""

    inputs_PC: Tensor
    taps: Sequence[tuple[Tensor, Tensor]]
    """For each distance from 1 on: rows, and the inputs that are so far before them."""


def inside_of(lengths: Sequence[int], num_taps: int, device: torch.device) -> list[Tensor]:
    """For each distance from 1 on: which rows (N, 1) have a row of their own sequence so far before them."""
    offsets_N = np.concatenate([np.arange(length) for length in lengths])
    return [torch.from_numpy(offsets_N >= distance).to(device).unsqueeze(1) for distance in range(1, num_taps)]


def convolve(x_NC: Tensor, taps_CW: Tensor, inside: Sequence[Tensor], earlier: Earlier | None = None) -> Tensor:
    """Sums (N, C) in fp32, before SiLU; rows see those of their own sequence and what was before it in `earlier`."""
    x_NC, taps_WC = x_NC.float(), taps_CW.float().T
    num_taps = len(taps_WC)
    y_NC = torch.zeros_like(x_NC)
    for distance in range(num_taps - 1, 0, -1):
        tap_C, is_inside_N1 = taps_WC[num_taps - 1 - distance], inside[distance - 1][distance:]
        y_NC[distance:].add_(tap_C * torch.where(is_inside_N1, x_NC[:-distance], 0.0))
        if earlier is not None:
            rows, places = earlier.taps[distance - 1]
            y_NC[rows] += tap_C * earlier.inputs_PC[places].float()
    return y_NC.add_(taps_WC[-1] * x_NC)


class Convolution(torch.autograd.Function):
    """SiLU of the convolution, in the precision of its input; what comes before SiLU is computed again."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, taps_CW: Tensor, inside: Sequence[Tensor]) -> Tensor:
        ctx.save_for_backward(x_NC, taps_CW)
        ctx.inside = inside
        return silu(convolve(x_NC, taps_CW, inside)).to(x_NC.dtype)

    @staticmethod
    def backward(ctx: Any, dout_NC: Tensor) -> tuple[Tensor | None, ...]:
        x_NC, taps_CW = ctx.saved_tensors
        sums_NC = convolve(x_NC, taps_CW, ctx.inside)
        dsums_NC = torch.ops.aten.silu_backward(dout_NC.float(), sums_NC)
        taps_WC, num_taps = taps_CW.float().T, taps_CW.shape[1]
        dx_NC = taps_WC[-1] * dsums_NC
        dtaps = [(x_NC.float() * dsums_NC).sum(0)] if ctx.needs_input_grad[1] else []
        for distance in range(1, num_taps):
            inside_NC = torch.where(ctx.inside[distance - 1][distance:], dsums_NC[distance:], 0.0)
            dx_NC[:-distance].add_(taps_WC[num_taps - 1 - distance] * inside_NC)
            if dtaps:
                dtaps.insert(0, (x_NC[:-distance].float() * inside_NC).sum(0))
        dtaps_CW = torch.stack(dtaps, 1).to(taps_CW.dtype) if dtaps else None
        return dx_NC.to(x_NC.dtype), dtaps_CW, None
