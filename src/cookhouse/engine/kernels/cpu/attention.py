"""Attention over the kernels, as a differentiable operation.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.cpu.functions import AttentionShape, CpuKernels


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
        kernels: CpuKernels,
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
        # In bf16 what sampling has, which takes values of as many features as keys.
        is_sampled = q_NHD.dtype == torch.bfloat16 and k_NKD.shape == v_NKD.shape and "rows_attention" in kernels.names
        name = "rows_attention" if is_sampled else "attention"
        kernels(name, q_NHD.dtype, ctypes.addressof(ctx.shape), q_NHD, k_NKD, v_NKD, out_NHD, sums_NH)
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
