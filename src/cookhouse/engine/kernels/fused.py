"""Forwards of `transformers` modules that run through the kernels: same values, an operation where torch takes ten.

Only modules whose code is known to mean exactly this: by class name, since norms of other families add one to their
weight, and rotate in pairs.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.elementwise import RmsNorm, RotateHeads, SiluGate
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
