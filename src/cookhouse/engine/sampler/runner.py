"""Computes what the scheduler decided: passes over packed pieces, through the cache, to logits.

Legend: N packed positions of a pass, B pieces whose next token is due, V vocabulary, H hidden.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.lora import Segment, Weights
from cookhouse.engine.model.attention import AttentionLayout
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler.cache import KeyValueCache, PagedLayout, TableLayout
from cookhouse.engine.sampler.graph import Capture, DecodeGraphs
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.state_pool import StateLayout, StatePool


@dataclass(frozen=True, slots=True)
class Reading:
    """Results of a pass: logits (B, V) fp32 after the pieces that reach their last token, and hidden states (N, H).

    A fused pass has hidden states only if they were asked for, and captured decoding has none.
    """

    logits_BV: Tensor
    hidden_NH: Tensor
    segments: list[Segment]
    first_rows: list[int]
    """First row of each piece in `hidden_NH`; what it is for a piece without hidden states means nothing."""


class Runner:
    """One base model over one cache. Passes go through the fused kernel where there is one, else through torch, with
    decoding as captured steps where there is a `capture`.
    """

    def __init__(
        self,
        base: BaseModel,
        num_blocks: int,
        block_size: int,
        *,
        num_states: int = 0,
        max_running: int,
        is_native: bool,
        capture: Capture | None,
        growth: Callable[[], int] | None = None,
    ) -> None:
        """`capture` needs the kernels that attend by tables of blocks. `num_states` is that of a model with recurrent
        layers, which no captured step serves yet. `growth` says how many of `num_blocks` there must be by now; None:
        all of them at once.
        """
        self._base = base
        self._growth = growth
        first = num_blocks if growth is None else growth()
        self._cache = KeyValueCache(base.cache_shape, first, block_size, base.device, base.dtype)
        self._states = StatePool(base.state_shapes, num_states, base.device, base.dtype) if num_states else None
        self._graphs = (
            None
            if capture is None or num_states
            else DecodeGraphs(base, self._cache, capture, max_rows=max_running, max_blocks=num_blocks)
        )
        self._kernel = DecodeKernel.build(base, self._cache) if is_native and capture is None else None

    @property
    def num_blocks(self) -> int:
        """Blocks that there is memory for."""
        return self._cache.scratch_block

    def _grow(self) -> None:
        if self._growth is not None and self._growth() > self.num_blocks:
            self._cache.grow(self._growth())
            if self._graphs is not None:
                self._graphs.reset()

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block of the cache."""
        self._grow()
        self._cache.copy_block(source, target)

    def run(self, pieces: Sequence[Piece], weights: Sequence[Weights | None], *, with_hidden: bool) -> Reading:
        """One pass; `weights[i]` is the adapter of piece i. Pieces of the bare base model come first, then by ascending
        serial of their weights.
        """
        self._grow()
        if self._kernel is not None:
            segments = _segments(pieces, weights)
            logits_BV, hidden_NH = self._kernel.run(pieces, segments, with_hidden=with_hidden)
            return Reading(logits_BV, hidden_NH.to(self._base.dtype), segments, _first_rows(pieces))
        decoding = [i for i, piece in enumerate(pieces) if piece.is_decoding] if self._graphs is not None else []
        decoded_BV = self._decode([pieces[i] for i in decoding], [weights[i] for i in decoding])
        if decoded_BV is None:
            return self._read(pieces, weights)
        chosen = set(decoding)
        others = [i for i in range(len(pieces)) if i not in chosen]
        if not others:
            hidden_NH = decoded_BV.new_empty(0, 0)
            return Reading(decoded_BV, hidden_NH, [], [0] * len(pieces))
        reading = self._read([pieces[i] for i in others], [weights[i] for i in others])
        return _merge(pieces, decoding, decoded_BV, others, reading)

    def _decode(self, pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> Tensor | None:
        """Logits (B, V) of pieces that decode; None where no graph serves."""
        return self._graphs.run(pieces, weights) if self._graphs is not None and pieces else None

    def _read(self, pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> Reading:
        segments, first_rows = _segments(pieces, weights), _first_rows(pieces)
        hidden_NH = self._hidden(pieces, segments)
        ends = [row + p.stop - p.start - 1 for row, p in zip(first_rows, pieces, strict=True) if p.is_last]
        rows_B = torch.tensor(ends, dtype=torch.int64)
        return Reading(self._base.head.rows(hidden_NH, rows_B, segments), hidden_NH, segments, first_rows)

    def _hidden(self, pieces: Sequence[Piece], segments: Sequence[Segment]) -> Tensor:
        tokens = [token for piece in pieces for token in piece.sequence.tokens[piece.start : piece.stop]]
        positions = np.concatenate([np.arange(piece.start, piece.stop) for piece in pieces])
        device = self._base.device
        return self._base.hidden(
            upload(np.array(tokens), device), upload(positions, device), self._layout(pieces), segments
        )

    def _layout(self, pieces: Sequence[Piece]) -> AttentionLayout:
        if self._graphs is not None:
            return TableLayout.of(pieces, self._cache, self._base.device)
        layout = PagedLayout(self._cache, pieces, self._base.device)
        return layout if self._states is None else StateLayout(layout, self._states, pieces, self._base.device)


def _merge(
    pieces: Sequence[Piece], decoding: Sequence[int], decoded_BV: Tensor, others: Sequence[int], reading: Reading
) -> Reading:
    """One reading of all pieces: logits of those that decode, and what was read of the others."""
    ready = [*decoding, *(i for i in others if pieces[i].is_last)]
    order_B = upload(np.argsort(ready), decoded_BV.device)
    first_rows = dict(zip(others, reading.first_rows, strict=True))
    return Reading(
        torch.cat([decoded_BV, reading.logits_BV])[order_B],
        reading.hidden_NH,
        reading.segments,
        [first_rows.get(i, 0) for i in range(len(pieces))],
    )


def _first_rows(pieces: Sequence[Piece]) -> list[int]:
    return list(itertools.accumulate((piece.stop - piece.start for piece in pieces[:-1]), initial=0))


def _segments(pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> list[Segment]:
    """One segment for each run of pieces of one adapter; pieces of the bare base model have none."""
    segments: list[Segment] = []
    start = 0
    for piece, piece_weights in zip(pieces, weights, strict=True):
        stop = start + piece.stop - piece.start
        if piece_weights is not None:
            is_same = segments and segments[-1].stop == start and segments[-1].weights is piece_weights
            first = segments.pop().start if is_same else start
            segments.append(Segment(start=first, stop=stop, weights=piece_weights))
        start = stop
    return segments
