"""Inputs of a captured decoding step, in tensors that stay where they are. Tables of blocks stay on the device: a step
is given their changes.

Legend: N rows of a step (one for each sequence, or padding), S sequences, M blocks of a table.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.sampler.cache import KeyValueCache
from cookhouse.engine.sampler.scheduler import Piece


class StepInputs:
    """Rows after those of the pieces are padding: each a sequence of one position in the scratch block."""

    def __init__(self, cache: KeyValueCache, device: torch.device, *, max_rows: int, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self._cache = cache
        self._longs = torch.zeros(3 * max_rows, dtype=torch.int64, device=device)
        """Tokens, positions and slots."""
        self._contexts = torch.ones(max_rows, dtype=torch.int32, device=device)
        self._tables = torch.zeros(max_rows * max_blocks, dtype=torch.int32, device=device)
        """One row after the other, each as wide as the step's. Behind a sequence's last block is any."""
        self._starts = torch.arange(max_rows + 1, dtype=torch.int32, device=device)
        self._padding = [[cache.scratch_block] for _ in range(max_rows)]
        """Blocks of rows of padding: a list for each, as each sequence has its own."""
        self._width = 0
        """Of the tables on the device; 0: nothing is known of them."""
        self._rows: list[list[int]] = []
        """Blocks of the sequence that each table is of. Such a list grows at its end alone: what was sent holds."""
        self._sent: list[int] = []
        """How many of these each table has."""

    def longs(self, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, positions and slots (N,) of a step of so many rows."""
        tokens_N, positions_N, slots_N = self._longs[: 3 * num_rows].view(3, num_rows)
        return tokens_N, positions_N, slots_N

    def contexts(self, num_rows: int) -> Tensor:
        """Lengths of the contexts (N,)."""
        return self._contexts[:num_rows]

    def tables(self, num_rows: int, num_blocks: int) -> Tensor:
        """Tables (N, M) of the blocks."""
        return self._tables[: num_rows * num_blocks].view(num_rows, num_blocks)

    def starts(self, num_rows: int) -> Tensor:
        """First row of each sequence and the number of rows (N + 1,)."""
        return self._starts[: num_rows + 1]

    def write(self, pieces: Sequence[Piece], num_rows: int, num_blocks: int) -> None:
        """Bring what a step of these pieces reads to the device, of which nothing is waited for."""
        if num_blocks != self._width:
            self._rows, self._sent = [], []
        self._width = 0  # as long as the device may have part of it
        longs, contexts, counts = _arrays(pieces, num_rows, self._cache)
        _copy(self._longs, longs)
        _copy(self._contexts, contexts)
        padding = num_rows - len(pieces)
        wanted = [*(piece.sequence.blocks for piece in pieces), *self._padding[:padding]]
        self._write_tables(wanted, [*counts, *([1] * padding)], num_blocks)
        self._width = num_blocks

    def forget(self) -> None:
        """Send tables whole the next time, as when memory ran out, or the scratch block is another."""
        self._width = 0
        self._padding = [[self._cache.scratch_block] for _ in self._padding]

    def _write_tables(self, wanted: list[list[int]], counts: list[int], width: int) -> None:
        """Have tables of so many of the blocks; what there is of a sequence moves to its row on the device."""
        before = {id(blocks): row for row, blocks in enumerate(self._rows)}  # all are kept: no two have an id in common
        found = [before.get(id(blocks), -1) for blocks in wanted]
        moves = [(row, to) for to, row in enumerate(found) if row not in (-1, to)]
        if moves:
            from_to = upload(np.array(moves).T, self._tables.device)
            rows = self.tables(max(len(wanted), len(self._rows)), width)
            rows.index_copy_(0, from_to[1], rows.index_select(0, from_to[0]))
        sent = [0 if row < 0 else self._sent[row] for row in found]
        places: list[int] = []
        added: list[int] = []
        for row, (blocks, count, start) in enumerate(zip(wanted, counts, sent, strict=True)):
            if count > start:
                places += range(row * width + start, row * width + count)
                added += blocks[start:count]
                sent[row] = count
        if places:
            changes = upload(np.array([places, added]), self._tables.device)
            self._tables.index_copy_(0, changes[0], changes[1].int())
        self._rows, self._sent = wanted, sent


def _arrays(
    pieces: Sequence[Piece], num_rows: int, cache: KeyValueCache
) -> tuple[NDArray[np.int64], NDArray[np.int32], list[int]]:
    """Tokens, positions and slots (3 · N,), lengths of the contexts (N,), and blocks that each piece reads."""
    size, count = cache.block_size, len(pieces)
    positions_S = np.fromiter((piece.start for piece in pieces), np.int64, count)
    counts = (positions_S // size + 1).tolist()
    longs_3N = np.zeros((3, num_rows), np.int64)
    longs_3N[2] = cache.scratch_block * size
    longs_3N[0, :count] = [piece.sequence.tokens[piece.start] for piece in pieces]
    longs_3N[1, :count] = positions_S
    last_S = np.array([piece.sequence.blocks[n - 1] for piece, n in zip(pieces, counts, strict=True)], np.int64)
    longs_3N[2, :count] = last_S * size + positions_S % size
    contexts_N = np.ones(num_rows, np.int32)
    contexts_N[:count] = positions_S + 1
    return longs_3N.reshape(-1), contexts_N, counts


def _copy(buffer: Tensor, array: NDArray[np.generic]) -> None:
    buffer[: len(array)].copy_(upload(array, buffer.device))
