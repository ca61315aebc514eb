"""Computes what the scheduler decided: passes over packed pieces, through the cache, to logits.

Legend: N packed positions of a pass, B pieces whose next token is due, V vocabulary, H hidden.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cookhouse.engine.base_model import BaseModel
from cookhouse.engine.lora import Segment, Weights
from cookhouse.engine.sampler.cache import KeyValueCache, PagedLayout
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.engine.sampler.scheduler import Piece


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pass computed: logits (B, V) fp32 after the pieces that reach their last token, and hidden states (N, H).

    A fused pass has hidden states only if they were asked for.
    """

    logits_BV: Tensor
    hidden_NH: Tensor
    segments: list[Segment]
    first_rows: list[int]
    """First row of each piece."""


class Runner:
    """One base model over one cache. Passes go through the fused kernel where there is one, else through torch."""

    def __init__(self, base: BaseModel, num_blocks: int, block_size: int, *, is_native: bool) -> None:
        self._base = base
        self._cache = KeyValueCache(base.cache_shape, num_blocks, block_size, base.device, base.dtype)
        self._kernel = DecodeKernel.build(base, self._cache) if is_native else None

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block of the cache."""
        self._cache.copy_block(source, target)

    def run(self, pieces: Sequence[Piece], weights: Sequence[Weights | None], *, with_hidden: bool) -> Reading:
        """One pass; `weights[i]` is the adapter of piece i, and pieces of one adapter are neighbors."""
        lengths = [piece.stop - piece.start for piece in pieces]
        first_rows = list(itertools.accumulate(lengths[:-1], initial=0))
        segments = _segments(lengths, weights)
        if self._kernel is not None:
            logits_BV, hidden_NH = self._kernel.run(pieces, segments, with_hidden=with_hidden)
            return Reading(logits_BV, hidden_NH.to(self._base.dtype), segments, first_rows)
        hidden_NH = self._hidden(pieces, segments)
        ends = [row + n - 1 for row, n, piece in zip(first_rows, lengths, pieces, strict=True) if piece.is_last]
        rows_B = torch.tensor(ends, dtype=torch.int64)
        return Reading(self._base.head.rows(hidden_NH, rows_B, segments), hidden_NH, segments, first_rows)

    def _hidden(self, pieces: Sequence[Piece], segments: Sequence[Segment]) -> Tensor:
        tokens = [token for piece in pieces for token in piece.sequence.tokens[piece.start : piece.stop]]
        positions = [position for piece in pieces for position in range(piece.start, piece.stop)]
        device = self._base.device
        return self._base.hidden(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, device=device),
            PagedLayout(self._cache, pieces, device),
            segments,
        )


def _segments(lengths: Sequence[int], weights: Sequence[Weights | None]) -> list[Segment]:
    """One segment for each run of pieces of one adapter; pieces of the bare base model have none."""
    segments: list[Segment] = []
    start = 0
    for length, piece_weights in zip(lengths, weights, strict=True):
        stop = start + length
        if piece_weights is not None:
            is_same = segments and segments[-1].stop == start and segments[-1].weights is piece_weights
            first = segments.pop().start if is_same else start
            segments.append(Segment(start=first, stop=stop, weights=piece_weights))
        start = stop
    return segments
