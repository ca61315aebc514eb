"""The layout of training: sequences packed one after the other, without a cache.

Legend: N packed positions, F positions of all sequences (a shared one counted for each), S sequences, H query heads,
K key-value heads, D features per head.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.cpu import CausalAttention
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.attention.products import Group, PackedProducts, Rule, group_sequences
from cookhouse.engine.model.attention.varlen import VarlenLengths, obstacle, varlen_attention
from cookhouse.engine.model.delta import DeltaInputs, PackedDelta


class PackedLayout:
    """Each sequence sees itself alone, causally: through FlashAttention, the kernels of a CPU, or batched products."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self._lengths = tuple(lengths)
        self._device = device

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
        """See `AttentionLayout`. Sinks get no gradient."""
        del layer
        if obstacle(q_NHD, v_NKD, softcap) is None:
            return varlen_attention(q_NHD, k_NKD, v_NKD, self._varlen, scaling=scaling, window=window, sinks_H=sinks_H)
        kernels = kernels_for(q_NHD, "attention") if sinks_H is None and softcap is None else None
        if kernels is not None:
            return CausalAttention.apply(  # type: ignore[no-any-return, no-untyped-call]
                q_NHD, k_NKD, v_NKD, self._starts, scaling, window, kernels
            )
        rule = Rule(scaling, window, sinks_H, softcap)
        out: Tensor = PackedProducts.apply(q_NHD, k_NKD, v_NKD, rule, self._groups)  # type: ignore[no-untyped-call]
        return out

    def recur(self, layer: int, inputs: DeltaInputs) -> Tensor:
        """See `DeltaLayout`."""
        del layer
        return self._delta.recur(inputs)

    @cached_property
    def _delta(self) -> PackedDelta:
        return PackedDelta(self._lengths, self._device)

    @cached_property
    def _starts(self) -> Tensor:
        """First row of each sequence and the number of rows, on the host."""
        return torch.tensor([0, *itertools.accumulate(self._lengths)])

    @cached_property
    def _varlen(self) -> VarlenLengths:
        starts_S1 = np.array([0, *itertools.accumulate(self._lengths)], np.int32)
        return VarlenLengths(upload(starts_S1, self._device), max(self._lengths))

    @cached_property
    def _groups(self) -> list[Group]:
        return group_sequences(self._lengths, self._device)


class SharedLayout(PackedLayout):
    """Sequences of which some begin with positions of another: `rows_F` is the packed position of each position of each
    sequence. Attention and gated delta layers see every sequence whole; all else is computed once for a position.
    """

    def __init__(self, lengths: Sequence[int], rows_F: NDArray[np.int64], device: torch.device) -> None:
        super().__init__(lengths, device)
        self._rows_F = upload(rows_F, device)
        self._places_N = upload(np.unique(rows_F, return_index=True)[1], device)

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
        """See `AttentionLayout`. Sinks get no gradient."""
        q_FHD, k_FKD, v_FKD = (each.index_select(0, self._rows_F) for each in (q_NHD, k_NKD, v_NKD))
        out_FHD = super().attend(
            layer, q_FHD, k_FKD, v_FKD, scaling=scaling, window=window, sinks_H=sinks_H, softcap=softcap
        )
        return out_FHD.index_select(0, self._places_N)

    def recur(self, layer: int, inputs: DeltaInputs) -> Tensor:
        """See `DeltaLayout`."""
        return super().recur(layer, inputs.at(self._rows_F)).index_select(0, self._places_N)
