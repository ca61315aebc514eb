"""Training attention by FlashAttention, through torch.

Its backward adds the gradients of queries by atomics, in an order that varies, unless torch's deterministic algorithms
are on, as they are inside `engine.device.deterministic`.

Legend: N packed positions, H query heads, K key-value heads, D features of a key, E features of a value, S sequences.
"""

import functools
import inspect
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad

_LARGEST_HEAD = 256
# Earlier versions of torch have no such argument and take fewer key-value heads as they are.
_NAMES_GROUPS = "enable_gqa" in inspect.signature(varlen_attn).parameters
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VarlenLengths:
    """Where packed sequences begin."""

    starts_S1: Tensor
    """First row of each sequence and the number of rows, int32, on the device."""
    longest: int


def obstacle(q_NHD: Tensor, v_NKE: Tensor, sinks_H: Tensor | None) -> str | None:
    """Why `varlen_attention` cannot compute this; None where it can. Told once where it costs a GPU's speed."""
    if q_NHD.device.type != "cuda":
        return "the tensors are not on a GPU"
    reason = _gpu_obstacle(q_NHD, v_NKE, sinks_H)
    if reason is not None:
        _tell(reason)
    return reason


def varlen_attention(
    q_NHD: Tensor, k_NKD: Tensor, v_NKE: Tensor, lengths: VarlenLengths, *, scaling: float, window: int | None
) -> Tensor:
    """Attention output (N, H, E), differentiable; `window` as of `AttentionLayout`."""
    starts_S1, longest = lengths.starts_S1, lengths.longest
    value_dim = v_NKE.shape[2]
    if value_dim < q_NHD.shape[2]:  # It takes values of as many features as keys: the others are zeros.
        v_NKE = pad(v_NKE, (0, q_NHD.shape[2] - value_dim))
    grouped: dict[str, Any] = {"enable_gqa": q_NHD.shape[1] != k_NKD.shape[1]} if _NAMES_GROUPS else {}
    out_NHD = varlen_attn(
        q_NHD,
        k_NKD,
        v_NKE,
        starts_S1,
        starts_S1,
        longest,
        longest,
        scale=scaling,
        # The keys to the left and to the right of a query's own; -1: all.
        window_size=(-1 if window is None else window - 1, 0),
        **grouped,
    )
    assert isinstance(out_NHD, Tensor)  # without the sums of the softmax, which were not asked for
    return out_NHD[..., :value_dim]


def _gpu_obstacle(q_NHD: Tensor, v_NKE: Tensor, sinks_H: Tensor | None) -> str | None:
    dim = q_NHD.shape[2]
    if q_NHD.dtype not in (torch.bfloat16, torch.float16):
        return f"it computes in bfloat16 or float16, not in {q_NHD.dtype}"
    if sinks_H is not None:
        return "it knows no sinks"
    if v_NKE.shape[2] > dim:
        return f"values must not have more features than keys, {v_NKE.shape[2]} and {dim}"
    if dim > _LARGEST_HEAD or dim % 8:
        return f"a head must have at most {_LARGEST_HEAD} features, a multiple of 8, not {dim}"
    if not _is_built_for(q_NHD.device):
        return "torch was built without it, or the GPU is older than compute capability 8.0"
    return None


def _is_built_for(device: torch.device) -> bool:
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def _tell(reason: str) -> None:
    _logger.info("attention goes through batched products, which is slower than FlashAttention: %s", reason)
