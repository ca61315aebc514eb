"""Training attention by batched products of blocks, for what no kernel computes, on any device.

Legend: N packed positions, S sequences of like length, L their padded length, H query heads, K key-value heads,
G query heads per key-value head, D features per head, R positions of a group, P those that are not padding.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.model.softcap import softcap_, softcap_slope

_QUERY_BLOCK = 128
_PAD_RATIO = 0.8
"""Sequences at least this fraction of the longest of their group are padded to it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences of like length. `rows_SL` are their packed positions; a short one repeats its last position."""

    rows_SL: Tensor
    padding: "Padding | None"
    """None when no entry is padding."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Entries of a group that are padding."""

    is_padding_SL: Tensor
    real_P: Tensor
    """Entries of the flattened group that are not."""
    rows_P: Tensor
    """Their packed positions."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A layer's treatment of its scores; see `AttentionLayout`."""

    scaling: float
    window: int | None
    sinks_H: Tensor | None
    softcap: float | None


def group_sequences(lengths: Sequence[int], device: torch.device) -> list[Group]:
    """Groups of packed sequences of these lengths, the longest first."""
    starts = [0, *itertools.accumulate(lengths)]
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[Group] = []
    while order:
        longest = lengths[order[0]]
        members = [i for i in order if lengths[i] >= longest * _PAD_RATIO]
        order = order[len(members) :]
        offsets_L = torch.arange(longest)
        ends_S1 = torch.tensor([lengths[i] for i in members]).unsqueeze(1)
        rows_SL = torch.tensor([starts[i] for i in members]).unsqueeze(1) + offsets_L.minimum(ends_S1 - 1)
        padding = None
        if lengths[members[-1]] != longest:
            is_real_SL = offsets_L < ends_S1
            # Found on the host: a GPU would be waited for in every layer.
            real_P = is_real_SL.view(-1).nonzero().view(-1)
            padding = Padding((~is_real_SL).to(device), real_P.to(device), rows_SL.view(-1)[real_P].to(device))
        groups.append(Group(rows_SL.to(device), padding))
    return groups


class PackedProducts(torch.autograd.Function):
    """Batched matmuls over groups of like length, in blocks of queries; backward computes the scores again."""

    @staticmethod
    def forward(
        ctx: Any,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        rule: Rule,
        groups: Sequence[Group],
    ) -> Tensor:
        num_kv_heads = k_NKD.shape[1]
        out_NHD = q_NHD.new_empty(*q_NHD.shape[:2], v_NKD.shape[2])
        for group in groups:
            q, k, v = (_gather(t, group, num_kv_heads) for t in (q_NHD, k_NKD, v_NKD))
            outs = [_probs(q, k, block, rule)[0] @ v[:, block.keys] for block in _blocks(q, k, rule.window)]
            _scatter(out_NHD, torch.cat(outs, 1) if len(outs) > 1 else outs[0], group, num_kv_heads)
        ctx.save_for_backward(q_NHD, k_NKD, v_NKD)
        ctx.rule, ctx.groups = rule, groups
        return out_NHD

    @staticmethod
    def backward(ctx: Any, dout_NHD: Tensor) -> tuple[Tensor | None, ...]:
        rule, groups = ctx.rule, ctx.groups
        inputs = ctx.saved_tensors
        num_kv_heads = inputs[1].shape[1]
        gradients = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in inputs]
        for group in groups:
            q, k, v = (_gather(t, group, num_kv_heads) for t in inputs)
            dout = _gather(dout_NHD, group, num_kv_heads, pad_with_zero=True)
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            for block in _blocks(q, k, rule.window):
                probs, slope = _probs(q, k, block, rule)
                dblock = dout[:, block.rows]
                dv[:, block.keys].baddbmm_(probs.transpose(1, 2), dblock)
                dprobs = dblock @ v[:, block.keys].transpose(1, 2)
                # A sink takes part in the softmax but has no gradient of its own, so its column adds nothing here.
                dscores = torch.ops.aten._softmax_backward_data(dprobs, probs, -1, probs.dtype).mul_(rule.scaling)
                if slope is not None:
                    dscores.mul_(slope)
                dq[:, block.rows] = dscores @ k[:, block.keys]
                dk[:, block.keys].baddbmm_(dscores.transpose(1, 2), q[:, block.rows])
            for target, source in zip(gradients, (dq, dk, dv), strict=True):
                _scatter(target, source, group, num_kv_heads)
        return *gradients, None, None


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries at positions [start, stop) of their sequences, and the keys that any of them may see."""

    start: int
    stop: int
    rows: slice
    keys: slice


def _blocks(q: Tensor, k: Tensor, window: int | None) -> list[_Block]:
    """Query blocks of grouped q (S·K, L·G, D) and k (S·K, L, D)."""
    length = k.shape[1]
    per_position = q.shape[1] // length
    blocks = []
    for start in range(0, length, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, length)
        first_key = 0 if window is None else max(0, start - window + 1)
        blocks.append(_Block(start, stop, slice(start * per_position, stop * per_position), slice(first_key, stop)))
    return blocks


def _probs(q: Tensor, k: Tensor, block: _Block, rule: Rule) -> tuple[Tensor, Tensor | None]:
    """Attention probabilities of a block, softmax in fp32, in the dtype of q; the slope of capped scores."""
    per_position = q.shape[1] // k.shape[1]
    query_positions = torch.arange(block.start, block.stop, device=q.device).repeat_interleave(per_position)
    distance = query_positions.unsqueeze(1) - torch.arange(block.keys.start, block.keys.stop, device=q.device)
    is_hidden = distance < 0 if rule.window is None else (distance < 0) | (distance >= rule.window)
    bias = torch.zeros(distance.shape, dtype=q.dtype, device=q.device).masked_fill_(is_hidden, float("-inf"))
    queries, keys = q[:, block.rows], k[:, block.keys].transpose(1, 2)
    slope = None
    if rule.softcap is None:
        scores = torch.baddbmm(bias, queries, keys, alpha=rule.scaling)
    else:
        scores = softcap_((queries @ keys).mul_(rule.scaling), rule.softcap)
        slope = softcap_slope(scores, rule.softcap)
        scores += bias
    if rule.sinks_H is None:
        return softmax(scores, None), slope
    # Scores are (S·K, L·G, keys): heads K outermost within a sequence, G innermost within a position.
    sinks_KLG = rule.sinks_H.view(-1, 1, per_position).expand(-1, block.stop - block.start, -1)
    num_sequences = q.shape[0] // sinks_KLG.shape[0]
    return softmax(scores, sinks_KLG.reshape(sinks_KLG.shape[0], -1, 1).repeat(num_sequences, 1, 1)), slope


def softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Softmax over the last dimension, in fp32, back in the dtype of the scores; `sinks` (…, 1) is left out again."""
    if sinks is None:
        return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    with_sink = torch.cat([scores, sinks.to(scores.dtype)], -1)
    return torch.softmax(with_sink, -1, dtype=torch.float32)[..., :-1].to(scores.dtype)


def widened(x: Tensor) -> Tensor:
    """In fp32 on a CPU, as its kernels compute attention; a GPU's products of bf16 are added in fp32 by themselves."""
    return x.float() if x.device.type == "cpu" and x.dtype == torch.bfloat16 else x


def _gather(x_NHD: Tensor, group: Group, num_kv_heads: int, *, pad_with_zero: bool = False) -> Tensor:
    """Positions of a group as (S·K, L·G, D): the query heads of one key-value head side by side at each position."""
    num_sequences, length = group.rows_SL.shape
    x_SLHD = widened(x_NHD[group.rows_SL])
    if pad_with_zero and group.padding is not None:
        x_SLHD.masked_fill_(group.padding.is_padding_SL[..., None, None], 0.0)
    grouped = x_SLHD.view(num_sequences, length, num_kv_heads, -1, x_NHD.shape[2]).transpose(1, 2)
    return grouped.reshape(num_sequences * num_kv_heads, -1, x_NHD.shape[2])


def _scatter(target_NHD: Tensor, x: Tensor, group: Group, num_kv_heads: int) -> None:
    """Inverse of `_gather`: write the real positions of a group into the packed tensor."""
    num_sequences, length = group.rows_SL.shape
    x_SLHD = x.view(num_sequences, num_kv_heads, length, -1, x.shape[2]).transpose(1, 2)
    x_RHD = x_SLHD.reshape(num_sequences * length, *target_NHD.shape[1:]).to(target_NHD.dtype)
    if group.padding is None:
        target_NHD[group.rows_SL.view(-1)] = x_RHD
    else:
        target_NHD[group.padding.rows_P] = x_RHD[group.padding.real_P]
