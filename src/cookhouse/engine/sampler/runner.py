"""Computes what the scheduler decided: passes over packed pieces, through the cache, to logits.

Legend: N packed positions of a pass, B pieces whose next token is due, V vocabulary, H hidden.
"""

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
    """Hidden states of a pass, its adapter segments, and the first row of each piece."""

    hidden_NH: Tensor
    segments: list[Segment]
    first_rows: list[int]


class Runner:
    """One base model over one cache. Decoding goes through the fused step where there is one, else through torch."""

    def __init__(self, base: BaseModel, num_blocks: int, block_size: int, *, is_native: bool) -> None:
        self._base = base
        self._cache = KeyValueCache(base.cache_shape, num_blocks, block_size, base.device, base.dtype)
        self._kernel = DecodeKernel.build(base, self._cache) if is_native else None

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block of the cache."""
        self._cache.copy_block(source, target)

    def read(self, pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> Reading:
        """One pass through torch; `weights[i]` is the adapter of piece i, and pieces of one adapter are neighbors."""
        lengths = [piece.stop - piece.start for piece in pieces]
        tokens = [token for piece in pieces for token in piece.sequence.tokens[piece.start : piece.stop]]
        positions = [position for piece in pieces for position in range(piece.start, piece.stop)]
        first_rows = [0]
        for length in lengths[:-1]:
            first_rows.append(first_rows[-1] + length)
        segments = _segments(lengths, weights)
        device = self._base.device
        hidden_NH = self._base.hidden(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, device=device),
            PagedLayout(self._cache, pieces, device),
            segments,
        )
        return Reading(hidden_NH, segments, first_rows)

    def decode(self, pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> Tensor:
        """Logits (B, V) fp32 after pieces of one token each; arguments as those of `read`."""
        if self._kernel is not None:
            return self._kernel.logits(pieces, _segments([1] * len(pieces), weights))
        reading = self.read(pieces, weights)
        return self._base.head.logits(reading.hidden_NH, reading.segments)


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
