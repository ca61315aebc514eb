"""Placement of datums in passes under a token budget: end to end without padding, or with the beginning that neighbors
have in common laid once.

A position depends on those before it alone, so that what two datums begin with has the same hidden states in both.

Legend: N packed positions, F positions of all datums, shared ones counted for each, D datums, T positions of a datum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from cookhouse.engine.contract import TrainingDatum
from cookhouse.engine.model.attention import PackedLayout, SharedLayout

_LEAST_SHARE = 8
"""Datums are not laid together for less than this part of their tokens."""
_ATTENTION_PART = 4
"""Queries, keys and values are at most this part of what a layer keeps of a position."""


@dataclass(frozen=True)
class Placed:
    """Datums in a pass. `own_lengths[i]` packed positions are those that datum i brings along."""

    tokens_N: NDArray[np.int64]
    positions_N: NDArray[np.int64]
    own_lengths: Sequence[int]
    rows_D: Sequence[NDArray[np.int64]]
    """The packed position of each position of a datum."""

    @cached_property
    def is_shared(self) -> bool:
        """True if some position serves several datums."""
        return sum(len(rows_T) for rows_T in self.rows_D) > len(self.tokens_N)

    @property
    def size(self) -> int:
        """Positions of a pass that keeps as much and shares nothing."""
        num_all = sum(map(len, self.rows_D))
        return _size(num_all, num_all - len(self.tokens_N))

    def layout(self, device: torch.device) -> PackedLayout:
        """For attention, which sees each datum whole."""
        lengths = [len(rows_T) for rows_T in self.rows_D]
        if not self.is_shared:
            return PackedLayout(lengths, device)
        return SharedLayout(lengths, np.concatenate(self.rows_D), device)


@dataclass(frozen=True, slots=True)
class DatumGroup:
    """Neighbors [start, stop) of a request that go into one pass, which they take like `size` positions."""

    start: int
    stop: int
    size: int


def groups_of(data_D: Sequence[TrainingDatum], num_together: int, budget_tokens: int) -> list[DatumGroup]:
    """The datums of a request in groups that are not parted: `num_together` at least, that a loss compares, and with
    them further ones that share enough with the one before them, while a pass of `budget_tokens` has room.
    """
    groups: list[DatumGroup] = []
    for start in range(0, len(data_D), num_together):
        span = range(start, start + num_together)
        shared_S = [shared_tokens(data_D[index - 1], data_D[index]) if index else 0 for index in span]
        is_alike = shared_S[0] * _LEAST_SHARE >= len(data_D[start].tokens_T)
        num_all = sum(len(data_D[index].tokens_T) for index in span)
        if is_alike and groups[-1].size + (size := _size(num_all, sum(shared_S))) <= budget_tokens:
            groups[-1] = DatumGroup(groups[-1].start, span.stop, groups[-1].size + size)
        else:
            groups.append(DatumGroup(start, span.stop, _size(num_all, sum(shared_S[1:]))))
    return groups


def pack(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Groups of each pass of at most `budget_tokens` positions, by index, in the order they lie; one longer
    than the budget gets its own pass.

    Longest first into the first pass with room: few passes, and neighbors of like length, which attention pads least.
    Depends on the lengths alone.
    """
    passes: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        slot = next((i for i, left in enumerate(room) if left >= length), None)
        if slot is None:
            passes.append([])
            room.append(max(budget_tokens, length))
            slot = len(passes) - 1
        passes[slot].append(index)
        room[slot] -= length
    return passes


def place(data_D: Sequence[TrainingDatum], joined_D: Sequence[bool]) -> Placed:
    """Lay datums; where `joined_D[i]`, datum i shares its beginning with the one before it."""
    tokens: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    rows_D: list[NDArray[np.int64]] = []
    num_rows = 0
    for index, (datum, is_joined) in enumerate(zip(data_D, joined_D, strict=True)):
        num_tokens = len(datum.tokens_T)
        num_shared = shared_tokens(data_D[index - 1], datum) if is_joined else 0
        own = np.arange(num_rows, num_rows + num_tokens - num_shared)
        rows_D.append(np.concatenate([rows_D[-1][:num_shared], own]) if num_shared else own)
        tokens.append(datum.tokens_T[num_shared:])
        positions.append(np.arange(num_shared, num_tokens))
        num_rows += len(own)
    return Placed(np.concatenate(tokens), np.concatenate(positions), [len(each) for each in tokens], rows_D)


def shared_tokens(one: TrainingDatum, other: TrainingDatum) -> int:
    """Tokens that both begin with."""
    length = min(len(one.tokens_T), len(other.tokens_T))
    differing = np.flatnonzero(one.tokens_T[:length] != other.tokens_T[:length])
    return int(differing[0]) if differing.size else length


def _size(num_all: int, num_shared: int) -> int:
    """Of positions of datums those that are laid, and of those that are shared a part: attention has them all."""
    return num_all - num_shared + num_shared // _ATTENTION_PART
