"""The gated delta rule, by chunks and by single positions, in fp32.

Of a head with state S (D, E), a position with query q, key k (both of length 1, q times D^-½) and value v, log-decay g
and rate β does: S ← e^g S; u = β (v - Sᵀ k); S ← S + k uᵀ; its output is Sᵀ q. (https://arxiv.org/abs/2412.06464)

Within a chunk that begins with S₀ let c be the running sum of g. Then the u of its positions are the solution of
(I + L) U = diag(β) (V - diag(e^c) K S₀), with L_ij = β_i e^(c_i - c_j) k_i·k_j for j < i, so that only chunks follow
one after the other (https://arxiv.org/abs/2406.06484).

Legend: M chunks, A of them in a step, B sequences of one position, T positions of a chunk, K key heads, G value heads
of a key head, D features of a key, E features of a value, C channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cookhouse.engine.model.delta.inputs import StateShape

_EPS = 1e-6
"""Added to the square of the length of queries and keys, as the released models were trained."""

OnStep = Callable[[int, Tensor], None]
"""Told of each step: its number and the states (A, K, G, D, E) after it."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a wave before the rule; padding has no decay and a rate of 0, so that it changes no state."""

    q_MKTD: Tensor
    k_MKTD: Tensor
    v_MKGTE: Tensor
    decay_MKGT: Tensor
    beta_MKGT: Tensor

    @classmethod
    def of(cls, mixed_MTC: Tensor, decay_MTV: Tensor, beta_MTV: Tensor, shape: StateShape) -> "Chunks":
        """From what was convolved, by position.

        Contiguous however many chunks: a matrix product takes its order of sums from the strides.
        """
        q, k, v = split_heads(mixed_MTC, shape)
        by_head = len(mixed_MTC), shape.num_key_heads, shape.per_key, -1
        return cls(
            _contiguous(q.transpose(1, 2)),
            _contiguous(k.transpose(1, 2)),
            _contiguous(v.permute(0, 2, 3, 1, 4)),
            decay_MTV.transpose(1, 2).reshape(by_head),
            beta_MTV.transpose(1, 2).reshape(by_head),
        )


def split_heads(mixed: Tensor, shape: StateShape) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys (…, K, D) of their lengths, and values (…, K, G, E), all fp32, of convolved channels (…, C)."""
    keys = shape.num_key_heads * shape.key_dim
    q, k, v = torch.split(mixed.float(), [keys, keys, shape.num_value_heads * shape.value_dim], -1)
    q, k = (x.view(*mixed.shape[:-1], shape.num_key_heads, shape.key_dim) for x in (q, k))
    v = v.view(*mixed.shape[:-1], shape.num_key_heads, shape.per_key, shape.value_dim)
    return _normal(q) * shape.key_dim**-0.5, _normal(k), v


def run_chunks(
    chunks: Chunks, state_AKGDE: Tensor, counts: Sequence[int], on_step: OnStep | None = None
) -> tuple[Tensor, Tensor]:
    """Output (M, K, G, T, E) of steps of so many chunks each, and the states after the last one."""
    q, k, v, beta = chunks.q_MKTD, chunks.k_MKTD, chunks.v_MKGTE, chunks.beta_MKGT.unsqueeze(-1)
    decay = chunks.decay_MKGT
    # On a GPU the order in which `cumsum` adds varies, so that a deterministic pass refuses it.
    sums = decay.cumsum(-1) if decay.device.type == "cpu" else triangular_sums(decay)
    length = sums.shape[-1]
    is_later = torch.ones(length, length, dtype=torch.bool, device=sums.device).triu(1)
    spread = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(is_later, float("-inf")).exp()
    identity = torch.eye(length, dtype=sums.dtype, device=sums.device)
    k_by_k, q_by_k = ((x @ k.transpose(-1, -2)).unsqueeze(2) for x in (k, q))
    system = (k_by_k * spread * beta).tril(-1) + identity
    solve = torch.linalg.solve_triangular(system, identity, upper=False, unitriangular=True)
    seen = q_by_k * spread
    before, after = sums.exp().unsqueeze(-1), (sums[..., -1:] - sums).exp().unsqueeze(-1)
    q, k = q.unsqueeze(2), k.unsqueeze(2)
    outs, start = [], 0
    for step, count in enumerate(counts):
        rows = slice(start, start + count)
        start += count
        state_AKGDE = state_AKGDE[:count]
        u = solve[rows] @ (beta[rows] * (v[rows] - before[rows] * (k[rows] @ state_AKGDE)))
        outs.append(before[rows] * (q[rows] @ state_AKGDE) + seen[rows] @ u)
        state_AKGDE = state_AKGDE * before[rows, ..., -1:, :] + k[rows].transpose(-1, -2) @ (after[rows] * u)
        if on_step is not None:
            on_step(step, state_AKGDE)
    return torch.cat(outs), state_AKGDE


def run_position(mixed_BC: Tensor, decay_BV: Tensor, beta_BV: Tensor, state_BKGDE: Tensor, shape: StateShape) -> Tensor:
    """Output (B, V, E) of one position of each sequence; the states become those after it."""
    q, k, v = split_heads(mixed_BC, shape)
    decay, beta = (x.view(*v.shape[:3], 1) for x in (decay_BV.float(), beta_BV.float()))
    q_row, k_row = (x[:, :, None, None] for x in (q, k))
    state_BKGDE.mul_(decay.exp().unsqueeze(-1))
    u = beta * (v - (k_row @ state_BKGDE).squeeze(-2))
    state_BKGDE.addcmul_(k_row.transpose(-1, -2), u.unsqueeze(-2))
    return (q_row @ state_BKGDE).squeeze(-2).flatten(1, 2)


def triangular_sums(x: Tensor) -> Tensor:
    """Sums along the last dimension up to each element, as a product with a triangular matrix."""
    return x @ torch.ones(x.shape[-1], x.shape[-1], dtype=x.dtype, device=x.device).triu()


def _normal(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPS)


def _contiguous(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)
