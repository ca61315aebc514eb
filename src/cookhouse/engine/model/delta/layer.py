"""The forward of gated delta layers of `transformers` over one packed row, as a layout cuts it into sequences.

Legend: N packed positions, V value heads, E features of a value.
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from cookhouse.engine.model.delta.inputs import DeltaInputs, StateShape
from cookhouse.errors import InputError

MODEL_TYPES = frozenset({"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"})
RECURRENT_KIND = "linear_attention"
"""What their configs call these layers."""
_LAYERS = frozenset(f"{family}GatedDeltaNet" for family in ("Qwen3_5", "Qwen3_5Moe", "Qwen3Next"))


def use_layout(model: nn.Module) -> None:
    """Give the gated delta layers of a model the forward below.

    Raises:
        InputError: one has an activation that is not computed.
    """
    for name, module in model.named_modules():
        if type(module).__name__ in _LAYERS and type(module).__module__.startswith("transformers.models."):
            if module.activation not in ("silu", "swish"):
                raise InputError(f"{name} convolves with {module.activation}; this engine computes silu")
            module.forward = MethodType(_forward, module)


def _forward(self: Any, hidden_states: Tensor, *, layout: Any, **_: Any) -> Tensor:
    """Of one packed row (1, N, hidden)."""
    mixed_NC, z_NVE, b_NV, a_NV = _project(self, hidden_states)
    shape = StateShape(self.num_k_heads, self.num_v_heads, self.head_k_dim, self.head_v_dim, self.conv_kernel_size)
    decay_NV = -self.A_log.float().exp() * softplus(a_NV.float() + self.dt_bias)
    inputs = DeltaInputs(mixed_NC, self.conv1d.weight.squeeze(1), decay_NV, b_NV.sigmoid(), shape)
    out_NVE = layout.recur(int(self.layer_idx), inputs)
    normal = self.norm(out_NVE.flatten(0, 1), z_NVE.flatten(0, 1))
    out: Tensor = self.out_proj(normal.view(1, len(mixed_NC), -1))
    return out


def _project(layer: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Channels before the convolution, the gate of the output (N, V, E), rates and decays (N, V) before activation."""
    if hasattr(layer, "in_proj_qkvz"):  # Qwen3-Next has the heads of two projections side by side
        mixed = layer.in_proj_qkvz(hidden_states), layer.in_proj_ba(hidden_states)
        q, k, v, z, b, a = (x[0] for x in layer.fix_query_key_value_ordering(*mixed))
        return torch.cat([x.flatten(1) for x in (q, k, v)], 1), z, b, a
    projections = (layer.in_proj_qkv, layer.in_proj_z, layer.in_proj_b, layer.in_proj_a)
    mixed_NC, z, b, a = (projection(hidden_states)[0] for projection in projections)
    return mixed_NC, z.unflatten(-1, (-1, layer.head_v_dim)), b, a
