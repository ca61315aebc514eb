"""Operations between the matrix products of a layer, differentiable, over the kernels.

Each takes one pass over memory, where torch takes several. In bf16 norms that are trained get gradients, too; in fp32
torch computes those.

Legend: N packed positions, H heads, D features per head.
"""

from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import Kernels


class RmsNorm(torch.autograd.Function):
    """x · weight / √(mean(x²) + eps) over the last dimension; bf16 of a residual stream in fp32, if the weight is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, kernels: Kernels) -> Tensor:
        x, is_narrowed = x.contiguous(), x.dtype == torch.float32 and weight.dtype == torch.bfloat16
        y = torch.empty_like(x, dtype=weight.dtype if is_narrowed else x.dtype)
        ctx.name = "residual_norm" if is_narrowed else "norm"
        weight = kernels.constant(weight)
        kernels(ctx.name, y.dtype, x, weight, eps, x.numel() // x.shape[-1], x.shape[-1], y)
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.kernels = eps, kernels
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dx = torch.empty_like(x)
        num_rows = x.numel() // x.shape[-1]
        ctx.kernels(f"{ctx.name}_backward", dy.dtype, x, weight, ctx.eps, num_rows, x.shape[-1], dy.contiguous(), dx)
        dweight = _norm_gradient(x, ctx.eps, dy, weight) if ctx.needs_input_grad[1] else None
        return dx, dweight, None, None


class RotateHeads(torch.autograd.Function):
    """Heads (N, H, D), normalized if there is a weight (D,), times cos plus their rotated halves times sin (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, x_NHD: Tensor, weight_D: Tensor | None, eps: float, cos_ND: Tensor, sin_ND: Tensor, kernels: Kernels
    ) -> Tensor:
        assert cos_ND.shape == sin_ND.shape == (x_NHD.shape[0], x_NHD.shape[2])
        x_NHD, cos_ND, sin_ND = x_NHD.contiguous(), kernels.constant(cos_ND), kernels.constant(sin_ND)
        weight_D = None if weight_D is None else kernels.constant(weight_D)
        y_NHD = torch.empty_like(x_NHD)
        kernels("rotate", x_NHD.dtype, x_NHD, weight_D, eps, cos_ND, sin_ND, *x_NHD.shape, y_NHD)
        # Without a norm the gradient does not depend on the input.
        ctx.save_for_backward(None if weight_D is None else x_NHD, weight_D, cos_ND, sin_ND)
        ctx.eps, ctx.kernels = eps, kernels
        return y_NHD

    @staticmethod
    def backward(ctx: Any, dy_NHD: Tensor) -> tuple[Tensor | None, ...]:
        x_NHD, weight_D, cos_ND, sin_ND = ctx.saved_tensors
        dy_NHD = dy_NHD.contiguous()
        dx_NHD = torch.empty_like(dy_NHD)
        ctx.kernels(
            "rotate_backward", dy_NHD.dtype, x_NHD, weight_D, ctx.eps, cos_ND, sin_ND, *dy_NHD.shape, dy_NHD, dx_NHD
        )
        dweight_D = None
        if ctx.needs_input_grad[1]:
            turned_NHD, sizes = torch.empty_like(dy_NHD), dy_NHD.shape
            arguments = (None, None, 0.0, cos_ND, sin_ND, *sizes, dy_NHD, turned_NHD)
            ctx.kernels("rotate_backward", dy_NHD.dtype, *arguments)
            dweight_D = _norm_gradient(x_NHD, ctx.eps, turned_NHD, weight_D)
        return dx_NHD, dweight_D, None, None, None, None


class SiluGate(torch.autograd.Function):
    """silu(gate) · up"""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, kernels: Kernels) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        y = torch.empty_like(gate)
        kernels("gate", gate.dtype, gate, up, gate.numel(), y)
        ctx.save_for_backward(gate, up)
        ctx.kernels = kernels
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        ctx.kernels("gate_backward", gate.dtype, gate, up, gate.numel(), dy.contiguous(), dgate, dup)
        return dgate, dup, None


def _norm_gradient(x: Tensor, eps: float, dy: Tensor, weight: Tensor) -> Tensor:
    """Gradient of a norm's weight."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (dy.float() * normed).flatten(0, -2).sum(0).to(weight.dtype)
