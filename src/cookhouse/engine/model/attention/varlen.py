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
from torch.nn.attention.varlen import AuxRequest, varlen_attn
from torch.nn.functional import pad

_LARGEST_HEAD = 256
# Earlier versions of torch have no such argument and take fewer key-value heads as they are.
_NAMES_GROUPS = "enable_gqa" in inspect.signature(varlen_attn).parameters
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VarlenLengths:
    """Beginnings of packed sequences."""

    starts_S1: Tensor
    """First row of each sequence and the number of rows, int32, on the device."""
    longest: int


def obstacle(q_NHD: Tensor, v_NKE: Tensor, softcap: float | None = None) -> str | None:
    """Why `varlen_attention` cannot compute this; None where it can. Told once where it costs a GPU's speed."""
    if q_NHD.device.type != "cuda":
        return "the tensors are not on a GPU"
    reason = _gpu_obstacle(q_NHD, v_NKE) if softcap is None else "it computes no softcap of scores"
    if reason is not None:
        _tell(reason)
    return reason


def varlen_attention(
    q_NHD: Tensor,
    k_NKD: Tensor,
    v_NKE: Tensor,
    lengths: VarlenLengths,
    *,
    scaling: float,
    window: int | None,
    sinks_H: Tensor | None,
) -> Tensor:
    """Attention output (N, H, E), differentiable but for the sinks; `window` and sinks as of `AttentionLayout`."""
    key_dim, value_dim = q_NHD.shape[2], v_NKE.shape[2]
    if value_dim < key_dim:  # It takes values of as many features as keys: the others are zeros.
        padded = pad(v_NKE, (0, key_dim - value_dim))
        out_NHD = varlen_attention(q_NHD, k_NKD, padded, lengths, scaling=scaling, window=window, sinks_H=sinks_H)
        return out_NHD.narrow(2, 0, value_dim)
    out_NHE: Tensor
    if sinks_H is None:
        out_NHE = _forward(q_NHD, k_NKD, v_NKE, lengths, scaling, window)
    else:
        out_NHE = _SinkAttention.apply(  # type: ignore[no-untyped-call]
            q_NHD, k_NKD, v_NKE, sinks_H, lengths, scaling, window
        )
    return out_NHE


class _SinkAttention(torch.autograd.Function):
    """Attention with sinks, from what FlashAttention computes without.

    A sink adds exp(sink) to the total of a query's weights and nothing to the sum of their values. So the output
    shrinks by total / (total + exp(sink)). FlashAttention's backward takes the weights from the logarithm of the total,
    and what reaches them through the total from the output: given those with the sink, its gradients are those with it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        sinks_H: Tensor,
        lengths: VarlenLengths,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        out_NHD, logs_HN = _forward(q_NHD, k_NKD, v_NKD, lengths, scaling, window, return_aux=AuxRequest(lse=True))
        assert logs_HN.shape == (q_NHD.shape[1], q_NHD.shape[0])
        raised_HN = torch.logaddexp(logs_HN, sinks_H.to(logs_HN.dtype).unsqueeze(1))
        out_NHD = (out_NHD * (logs_HN - raised_HN).exp().T.unsqueeze(2)).to(q_NHD.dtype)
        assert isinstance(out_NHD, Tensor)
        ctx.save_for_backward(q_NHD, k_NKD, v_NKD, out_NHD, raised_HN, lengths.starts_S1)
        ctx.longest, ctx.scaling, ctx.window = lengths.longest, scaling, window
        return out_NHD

    @staticmethod
    def backward(ctx: Any, dout_NHD: Tensor) -> tuple[Tensor | None, ...]:
        q_NHD, k_NKD, v_NKD, out_NHD, logs_HN, starts_S1 = ctx.saved_tensors
        lengths = VarlenLengths(starts_S1, ctx.longest)
        inputs = (dout_NHD.contiguous(), q_NHD, k_NKD, v_NKD, out_NHD, logs_HN)
        gradients = _backward(*inputs, lengths, ctx.scaling, ctx.window)
        return *gradients, None, None, None, None


def _forward(
    q_NHD: Tensor,
    k_NKD: Tensor,
    v_NKD: Tensor,
    lengths: VarlenLengths,
    scaling: float,
    window: int | None,
    **options: Any,
) -> Any:
    if _NAMES_GROUPS:
        options["enable_gqa"] = q_NHD.shape[1] != k_NKD.shape[1]
    starts_S1, longest = lengths.starts_S1, lengths.longest
    span = _span(window)
    return varlen_attn(
        q_NHD, k_NKD, v_NKD, starts_S1, starts_S1, longest, longest, scale=scaling, window_size=span, **options
    )


def _backward(
    dout_NHD: Tensor,
    q_NHD: Tensor,
    k_NKD: Tensor,
    v_NKD: Tensor,
    out_NHD: Tensor,
    logs_HN: Tensor,
    lengths: VarlenLengths,
    scaling: float,
    window: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values, as `varlen_attn` itself asks for them; nothing is dropped at random."""
    starts_S1, longest = lengths.starts_S1, lengths.longest
    seed, unused = (torch.zeros(n, dtype=torch.uint64, device=q_NHD.device) for n in (2, 0))
    left, right = _span(window)
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
        dout_NHD,
        q_NHD,
        k_NKD,
        v_NKD,
        out_NHD,
        logs_HN,
        starts_S1,
        starts_S1,
        longest,
        longest,
        0.0,
        window is None,
        seed,
        unused,
        scale=scaling,
        window_size_left=left,
        window_size_right=right,
    )
    return gradients


def _span(window: int | None) -> tuple[int, int]:
    """Keys that a query sees to the left and to the right of its own; -1: all."""
    return (-1 if window is None else window - 1, 0)


def _gpu_obstacle(q_NHD: Tensor, v_NKE: Tensor) -> str | None:
    dim = q_NHD.shape[2]
    if q_NHD.dtype not in (torch.bfloat16, torch.float16):
        return f"it computes in bfloat16 or float16, not in {q_NHD.dtype}"
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
