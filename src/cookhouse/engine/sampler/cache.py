"""Keys and values of sequences being sampled, in blocks, and attention over them.

Legend: N packed positions of a pass, S sequences (of `_Group`: that read like numbers of positions), M blocks of the
longest table, C positions each reads, L padded context length, H query heads, K key-value heads, G query heads per
key-value head, D features per head.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.attention import CacheShape, softmax, widened
from cookhouse.engine.model.softcap import softcap_
from cookhouse.engine.sampler.scheduler import Piece

_QUERY_BLOCK = 128
_PAD_RATIO = 0.5
"""Decoding contexts at least this fraction of the longest of their group are padded to it."""


class KeyValueCache:
    """Keys and values by layer, (blocks · block size, K, D), of the layers that keep them.

    A position's slot is its block's first slot plus its offset. There is one block more than asked for,
    `scratch_block`, where rows that belong to no sequence write.
    """

    def __init__(
        self, shape: CacheShape, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.block_size = block_size
        self.scratch_block = num_blocks
        self._stacks: list[Tensor] = []
        """Layers of one shape lie in one tensor: a block is copied in all of them at once."""
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self._holders: list[tuple[dict[int, Tensor], list[int]]] = []
        """Of each stack, where its layers are found and which they are."""
        for like in {layer for layer in shape.layers if layer is not None}:
            members = [index for index, layer in enumerate(shape.layers) if layer == like]
            size = (len(members), (num_blocks + 1) * block_size, like.num_kv_heads)
            for target, dim in ((self.keys, like.key_dim), (self.values, like.value_dim)):
                self._stacks.append(torch.empty(*size, dim, device=device, dtype=dtype))
                self._holders.append((target, members))
                self._hand_out(len(self._stacks) - 1)

    def grow(self, num_blocks: int) -> None:
        """Have more blocks, which are other tensors: what is in the present ones is copied, one stack at a time."""
        size = self.block_size
        for index, stack in enumerate(self._stacks):
            shape = stack.shape[0], (num_blocks + 1) * size, *stack.shape[2:]
            grown = torch.empty(shape, device=stack.device, dtype=stack.dtype)
            grown[:, : self.scratch_block * size] = stack[:, : self.scratch_block * size]
            self._stacks[index] = grown
            del stack
            self._hand_out(index)
        self.scratch_block = num_blocks

    def _hand_out(self, index: int) -> None:
        holder, members = self._holders[index]
        holder.update(zip(members, self._stacks[index].unbind(), strict=True))

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block in every layer."""
        size = self.block_size
        for tensor in self._stacks:
            tensor[:, target * size : (target + 1) * size] = tensor[:, source * size : (source + 1) * size]

    def slots(self, blocks: Sequence[int], num_positions: int) -> Tensor:
        """Slots of a sequence's first positions."""
        starts = torch.tensor(blocks).unsqueeze(1) * self.block_size
        return (starts + torch.arange(self.block_size)).view(-1)[:num_positions]


def can_page(device: torch.device, dtype: torch.dtype) -> bool:
    """True if `TableLayout` can attend there: on a GPU that runs Triton's kernels."""
    return device.type == "cuda" and kernels_for(torch.empty(0, dtype=dtype, device=device)) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """`PagedLayout` in terms of tensors on the device alone.

    Attending reads nothing back to the host and allocates by shapes, so that a captured CUDA graph of it serves
    whatever the tensors are filled with later. A row that belongs to no sequence is a piece of its own with context 1
    in the cache's scratch block.
    """

    cache: KeyValueCache
    slots_N: Tensor
    """Cache slot that each row's key and value go to, int64."""
    tables_SM: Tensor
    """Blocks of each piece's sequence, int32; any block after the last."""
    starts_S1: Tensor
    """First row of each piece, and the number of rows, int32."""
    contexts_S: Tensor
    """Positions that the piece's sequence has in the cache after this pass, int32."""
    max_queries: int
    """Rows of the longest piece."""
    min_queries: int = 1
    """Rows of the shortest piece, or less."""

    @classmethod
    def of(cls, pieces: Sequence[Piece], cache: KeyValueCache, device: torch.device) -> "TableLayout":
        """The layout of a pass over these pieces, whose sequences have their blocks."""
        size = cache.block_size
        lengths = [piece.stop - piece.start for piece in pieces]
        counts = [-(-piece.stop // size) for piece in pieces]
        tables_SM = np.full((len(pieces), max(counts)), cache.scratch_block, np.int32)
        slots_N = np.empty(sum(lengths), np.int64)
        starts_S1 = np.array([0, *itertools.accumulate(lengths)], np.int32)
        for index, (piece, count) in enumerate(zip(pieces, counts, strict=True)):
            tables_SM[index, :count] = piece.sequence.blocks[:count]
            positions = np.arange(piece.start, piece.stop)
            rows = slice(starts_S1[index], starts_S1[index + 1])
            slots_N[rows] = tables_SM[index, positions // size].astype(np.int64) * size + positions % size
        contexts_S = np.array([piece.stop for piece in pieces], np.int32)
        slots, tables, starts, contexts = (
            upload(array, device) for array in (slots_N, tables_SM, starts_S1, contexts_S)
        )
        return cls(
            cache=cache,
            slots_N=slots,
            tables_SM=tables,
            starts_S1=starts,
            contexts_S=contexts,
            max_queries=max(lengths),
            min_queries=min(lengths),
        )

    def attend(
        self,
        layer: int,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        *,
        scaling: float,
        window: int | None,
        sinks_H: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """See `AttentionLayout`. Not differentiable."""
        # Triton is there on Linux alone.
        from cookhouse.engine.kernels.gpu.paged_attention import paged_attention

        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys.index_copy_(0, self.slots_N, k_NKD)
        values.index_copy_(0, self.slots_N, v_NKD)
        return paged_attention(
            q_NHD,
            keys,
            values,
            self.tables_SM,
            self.starts_S1,
            self.contexts_S,
            block_size=self.cache.block_size,
            max_queries=self.max_queries,
            min_queries=self.min_queries,
            scaling=scaling,
            window=window,
            sinks_H=sinks_H,
            softcap=softcap,
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Pieces that read the same number of positions."""

    rows_SC: Tensor
    positions_SC: Tensor
    slots_SL: Tensor
    """Slots of each context; past its end, its first: no query sees that far."""


class PagedLayout:
    """Each piece of a pass writes its keys and values, then sees its own sequence's cache up to itself."""

    def __init__(self, cache: KeyValueCache, pieces: Sequence[Piece], device: torch.device) -> None:
        self._cache = cache
        contexts = [cache.slots(piece.sequence.blocks, piece.stop) for piece in pieces]
        self._new_slots_N = torch.cat([c[p.start :] for c, p in zip(contexts, pieces, strict=True)]).to(device)
        first_rows = [0]
        for piece in pieces:
            first_rows.append(first_rows[-1] + piece.stop - piece.start)
        self._groups = [
            _make_group(
                [pieces[i] for i in members], [first_rows[i] for i in members], [contexts[i] for i in members], device
            )
            for members in _group_members(pieces)
        ]

    def attend(
        self,
        layer: int,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        *,
        scaling: float,
        window: int | None,
        sinks_H: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """See `AttentionLayout`."""
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys[self._new_slots_N] = k_NKD
        values[self._new_slots_N] = v_NKD
        out_NHD = q_NHD.new_empty(*q_NHD.shape[:2], v_NKD.shape[2])
        for group in self._groups:
            k_SLKD, v_SLKD = widened(keys[group.slots_SL]), widened(values[group.slots_SL])
            for rows_SC, positions_SC in zip(
                torch.split(group.rows_SC, _QUERY_BLOCK, 1),
                torch.split(group.positions_SC, _QUERY_BLOCK, 1),
                strict=True,
            ):
                out = _attend(widened(q_NHD[rows_SC]), k_SLKD, v_SLKD, positions_SC, scaling, window, sinks_H, softcap)
                out_NHD[rows_SC.reshape(-1)] = out.flatten(0, 1).to(out_NHD.dtype)
        return out_NHD


def _attend(
    q_SCHD: Tensor,
    k_SLKD: Tensor,
    v_SLKD: Tensor,
    positions_SC: Tensor,
    scaling: float,
    window: int | None,
    sinks_H: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """Attention (S, C, H, D) of queries at known positions over contexts that start at position 0."""
    num_sequences, count, num_heads, dim = q_SCHD.shape
    length, num_kv_heads = k_SLKD.shape[1:3]
    distance_SCL = positions_SC.unsqueeze(2) - torch.arange(length, device=positions_SC.device)
    is_hidden = distance_SCL < 0 if window is None else (distance_SCL < 0) | (distance_SCL >= window)
    bias_SCL = torch.zeros(is_hidden.shape, dtype=q_SCHD.dtype, device=q_SCHD.device).masked_fill_(
        is_hidden, float("-inf")
    )
    q_SKCGD = q_SCHD.view(num_sequences, count, num_kv_heads, -1, dim).transpose(1, 2)
    per_kv = num_heads // num_kv_heads
    k_SKLD, v_SKLD = k_SLKD.transpose(1, 2), v_SLKD.transpose(1, 2)
    scores = (q_SKCGD.reshape(num_sequences, num_kv_heads, count * per_kv, dim) @ k_SKLD.transpose(2, 3)) * scaling
    if softcap is not None:
        softcap_(scores, softcap)
    scores = scores.view(num_sequences, num_kv_heads, count, per_kv, length) + bias_SCL[:, None, :, None]
    if sinks_H is not None:
        sinks_H = sinks_H.view(num_kv_heads, 1, per_kv, 1).expand(num_sequences, -1, count, -1, -1)
    probs = softmax(scores, sinks_H)
    out = probs.view(num_sequences, num_kv_heads, count * per_kv, length) @ v_SKLD
    out_SCKGD = out.view(num_sequences, num_kv_heads, count, per_kv, -1).transpose(1, 2)
    return out_SCKGD.reshape(num_sequences, count, num_heads, -1)


def _group_members(pieces: Sequence[Piece]) -> list[list[int]]:
    """Indices of pieces by number of positions, decoding ones also by context length."""
    groups: list[list[int]] = []
    order = sorted(range(len(pieces)), key=lambda i: (pieces[i].stop - pieces[i].start, -pieces[i].stop))
    for index in order:
        piece = pieces[index]
        first = pieces[groups[-1][0]] if groups else None
        if first and piece.stop - piece.start == first.stop - first.start and piece.stop >= first.stop * _PAD_RATIO:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _make_group(
    pieces: Sequence[Piece], rows: Sequence[int], contexts: Sequence[Tensor], device: torch.device
) -> _Group:
    offsets_C = torch.arange(pieces[0].stop - pieces[0].start)
    padded_SL = torch.nn.utils.rnn.pad_sequence(list(contexts), batch_first=True, padding_value=-1)
    # A hidden key still takes part: what is not finite in another sequence's slot would spread.
    slots_SL = torch.where(padded_SL < 0, padded_SL[:, :1], padded_SL)
    return _Group(
        (torch.tensor(rows).unsqueeze(1) + offsets_C).to(device),
        (torch.tensor([piece.start for piece in pieces]).unsqueeze(1) + offsets_C).to(device),
        slots_SL.to(device),
    )
