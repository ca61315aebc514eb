"""Forwards of `transformers` modules that run through the kernels: same values, an operation where torch takes ten.

Only modules whose code is known to mean exactly this: by class name, since norms of other families add one to their
weight, and rotate in pairs.

The operations between matrix products are differentiable, and take one pass over memory each, where torch takes
several. In bf16 norms that are trained get gradients, too; in fp32 torch computes those.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from cookhouse.engine.kernels.choice import Kernels, kernels_for
from cookhouse.engine.kernels.products import linear

_LINEARS: frozenset[type] = frozenset({nn.Linear})  # and no class of it that may do something else
_FAMILIES = ("Llama", "Qwen2", "Qwen3", "Qwen3Moe")
_NORMS = frozenset(f"{family}RMSNorm" for family in (*_FAMILIES, "DeepseekV3", "GptOss"))
_MLPS = frozenset(f"{family}MLP" for family in (*_FAMILIES, "DeepseekV3"))
_ATTENTIONS = frozenset(f"{family}Attention" for family in _FAMILIES)
_LAYERS = frozenset(f"{family}DecoderLayer" for family in _FAMILIES)
"""Those that take a residual stream in fp32: their norms give what their products multiply."""


def fuse(model: Any) -> torch.dtype:
    """Give the modules of a model the forwards below, where there are kernels for its weights; the precision that its
    residual stream is to have.
    """
    weight: Tensor = model.get_input_embeddings().weight
    kernels = kernels_for(weight, "norm", "rotate", "gate")
    if kernels is None:
        return weight.dtype
    for module in model.modules():
        if type(module) in _LINEARS:
            module.forward = MethodType(_linear_forward, module)
        kind = type(module).__name__
        if not type(module).__module__.startswith("transformers.models."):
            continue
        if kind in _NORMS:
            module.forward = MethodType(_norm_forward, module)
        elif kind in _MLPS and module.config.hidden_act == "silu":
            module.forward = MethodType(_mlp_forward, module)
        elif kind in _ATTENTIONS:
            module.forward = MethodType(_attention_forward, module)
    layers = [type(module) for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    can_widen = "residual_norm" in kernels.names and all(
        kind.__name__ in _LAYERS and kind.__module__.startswith("transformers.models.") for kind in layers
    )
    return torch.float32 if can_widen else weight.dtype


def _linear_forward(self: Any, x: Tensor) -> Tensor:
    y_NO = linear(x.reshape(-1, self.in_features), self.weight, self.bias)
    return y_NO.view(*x.shape[:-1], self.out_features)


def _norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    kernels = kernels_for(hidden_states)
    if kernels is None or (self.weight.requires_grad and not _is_residual(hidden_states, self.weight)):
        plain: Tensor = type(self).forward(self, hidden_states)
        return plain
    y: Tensor = RmsNorm.apply(hidden_states, self.weight, self.variance_epsilon, kernels)  # type: ignore[no-untyped-call]
    return y


def _is_residual(x: Tensor, weight: Tensor) -> bool:
    """True if a norm takes a residual stream in fp32, and gives what products in bf16 take."""
    return x.dtype == torch.float32 and weight.dtype == torch.bfloat16


def _mlp_forward(self: Any, x: Tensor) -> Tensor:
    gated = SiluGate.apply(self.gate_proj(x), self.up_proj(x), kernels_for(x))  # type: ignore[no-untyped-call]
    y: Tensor = self.down_proj(gated)
    return y


def _attention_forward(
    self: Any,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None = None,
    *,
    layout: Any,
    **_: Any,
) -> tuple[Tensor, None]:
    """Of one packed row (1, N, hidden), as `layout` sees it; its heads stay position-major."""
    assert attention_mask is None
    q_NHD, k_NKD, v_NKD = (
        projection(hidden_states)[0].view(hidden_states.shape[1], -1, self.head_dim)
        for projection in (self.q_proj, self.k_proj, self.v_proj)
    )
    cos_ND, sin_ND = (t[0] for t in position_embeddings)
    q_NHD = _rotate(q_NHD, getattr(self, "q_norm", None), cos_ND, sin_ND)
    k_NKD = _rotate(k_NKD, getattr(self, "k_norm", None), cos_ND, sin_ND)
    window = getattr(self, "sliding_window", None)
    out_NHD = layout.attend(int(self.layer_idx), q_NHD, k_NKD, v_NKD, scaling=self.scaling, window=window)
    return self.o_proj(out_NHD.flatten(1).unsqueeze(0)), None


def _rotate(x_NHD: Tensor, norm: Any, cos_ND: Tensor, sin_ND: Tensor) -> Tensor:
    weight_D, eps = (None, 0.0) if norm is None else (norm.weight, norm.variance_epsilon)
    kernels = kernels_for(x_NHD)
    # On a CPU in bf16 what sampling has is rounded once, behind both.
    is_sampled = kernels is not None and "rows_rotate" in kernels.names and x_NHD.dtype == torch.bfloat16
    if weight_D is not None and torch.is_grad_enabled() and weight_D.requires_grad and not is_sampled:
        x_NHD, weight_D = norm(x_NHD), None
    y: Tensor = RotateHeads.apply(x_NHD, weight_D, eps, cos_ND, sin_ND, kernels)  # type: ignore[no-untyped-call]
    return y


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
