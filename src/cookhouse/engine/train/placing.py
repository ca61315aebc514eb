"""Where datums lie in a pass: end to end, or with the beginning that two of a group have in common laid once.

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
        """Whether some position serves several datums."""
        return sum(len(rows_T) for rows_T in self.rows_D) > len(self.tokens_N)

    def layout(self, device: torch.device) -> PackedLayout:
        """For attention, which sees each datum whole."""
        lengths = [len(rows_T) for rows_T in self.rows_D]
        if not self.is_shared:
            return PackedLayout(lengths, device)
        return SharedLayout(lengths, np.concatenate(self.rows_D), device)


def place(data_D: Sequence[TrainingDatum], first_D: Sequence[int]) -> Placed:
    """Lay datums; `first_D[i]`, i itself or before it, is the one whose beginning datum i shares."""
    tokens: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    rows_D: list[NDArray[np.int64]] = []
    num_rows = 0
    for index, (datum, first) in enumerate(zip(data_D, first_D, strict=True)):
        num_tokens = len(datum.tokens_T)
        num_shared = 0 if first == index else shared_tokens(data_D[first], datum)
        own = np.arange(num_rows, num_rows + num_tokens - num_shared)
        rows_D.append(np.concatenate([rows_D[first][:num_shared], own]) if num_shared else own)
        tokens.append(datum.tokens_T[num_shared:])
        positions.append(np.arange(num_shared, num_tokens))
        num_rows += len(own)
    return Placed(np.concatenate(tokens), np.concatenate(positions), [len(each) for each in tokens], rows_D)


def shared_tokens(one: TrainingDatum, other: TrainingDatum) -> int:
    """Tokens that both begin with."""
    length = min(len(one.tokens_T), len(other.tokens_T))
    differing = np.flatnonzero(one.tokens_T[:length] != other.tokens_T[:length])
    return int(differing[0]) if differing.size else length
