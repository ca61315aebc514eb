"""Differentiable operations over the kernels: one pass over memory each, where torch takes several.

Only activations get gradients: norms are frozen.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.native.kernels import AttentionShape, Kernels


class RmsNorm(torch.autograd.Function):
    """x · weight / √(mean(x²) + eps) over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, kernels: Kernels) -> Tensor:
        x, weight = x.contiguous(), weight.float()
        y = torch.empty_like(x)
        kernels("norm", x.dtype, x, weight, eps, x.numel() // x.shape[-1], x.shape[-1], y)
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.kernels = eps, kernels
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dx = torch.empty_like(x)
        num_rows = x.numel() // x.shape[-1]
        ctx.kernels("norm_backward", x.dtype, x, weight, ctx.eps, num_rows, x.shape[-1], dy.contiguous(), dx)
        return dx, None, None, None


class RotateHeads(torch.autograd.Function):
    """Heads (N, H, D), normalized if there is a weight (D,), times cos plus their rotated halves times sin (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, x_NHD: Tensor, weight_D: Tensor | None, eps: float, cos_ND: Tensor, sin_ND: Tensor, kernels: Kernels
    ) -> Tensor:
        assert cos_ND.shape == sin_ND.shape == (x_NHD.shape[0], x_NHD.shape[2])
        x_NHD, cos_ND, sin_ND = x_NHD.contiguous(), cos_ND.contiguous(), sin_ND.contiguous()
        weight_D = None if weight_D is None else weight_D.float()
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
        return dx_NHD, None, None, None, None, None


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


class CausalAttention(torch.autograd.Function):
    """Attention (N, H, D) of sequences that start at `starts` (sequences + 1,), each causally over itself alone."""

    @staticmethod
    def forward(
        ctx: Any,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        starts: Tensor,
        scaling: float,
        window: int | None,
        kernels: Kernels,
    ) -> Tensor:
        q_NHD, k_NKD, v_NKD = (t.contiguous() for t in (q_NHD, k_NKD, v_NKD))
        ctx.shape = AttentionShape(
            num_sequences=len(starts) - 1,
            num_heads=q_NHD.shape[1],
            num_kv_heads=k_NKD.shape[1],
            key_dim=k_NKD.shape[2],
            value_dim=v_NKD.shape[2],
            window=window or 0,
            starts=starts.data_ptr(),
            scaling=scaling,
        )
        out_NHD = q_NHD.new_empty(*q_NHD.shape[:2], v_NKD.shape[2])
        sums_NH = torch.empty(q_NHD.shape[:2])
        kernels("attention", q_NHD.dtype, ctypes.addressof(ctx.shape), q_NHD, k_NKD, v_NKD, out_NHD, sums_NH)
        ctx.save_for_backward(q_NHD, k_NKD, v_NKD, sums_NH, starts)
        ctx.kernels = kernels
        return out_NHD

    @staticmethod
    def backward(ctx: Any, dout_NHD: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, sums_NH, _ = ctx.saved_tensors
        gradients = [torch.empty_like(t) for t in inputs]
        shape = ctypes.addressof(ctx.shape)
        dout_NHD = dout_NHD.contiguous()
        ctx.kernels("attention_backward", dout_NHD.dtype, shape, *inputs, sums_NH, dout_NHD, *gradients)
        return *gradients, None, None, None, None
