"""Inputs of captured decoding steps, in tensors that stay where they are: positions and tables of blocks, and slots of
adapters.

Legend: N rows of a step (one for each sequence, or padding), S sequences, M blocks of a table, K slots.
"""

from collections.abc import Sequence
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.adapter_stack import AdapterStack, has_room, max_slots, stack_bytes
from cookhouse.engine.lora.grouped import Groups
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler.cache import KeyValueCache
from cookhouse.engine.sampler.scheduler import Piece

_REFUSED_SECONDS = 60.0
"""A stack for which memory ran out is not tried again for so long: each try costs all graphs, and shortages pass."""


class StepInputs:
    """Rows after those of the pieces are padding: each a sequence of one position in the scratch block. Tables stay on
    the device: a step is given their changes.
    """

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


class AdapterSlots:
    """Slots hold adapters by ascending serial: rows that are sorted by it lie in the order of the slots.

    Weights are copied in when a step needs them and are not there; those it does not need make room then. No weights
    are kept alive.
    """

    def __init__(self, base: BaseModel, *, is_shared: bool) -> None:
        """A shared slots is for rows of several adapters and of the bare base model, which go through zeros in slot 0.

        One that is not has a single slot, for all rows: its products are ordinary ones, which are faster.
        """
        self._base = base
        self._max_slots = max_slots(base.sites)
        self._has_experts = any(site.num_experts for site in base.sites)
        self._is_shared = is_shared
        self._serials = self._slots(())
        """Of the slots in use."""
        self.groups: Groups | None = None
        """Groups that a captured step goes through; `grow` and `clear` replace it."""
        self._refused: dict[tuple[int, int], float] = {}
        """Slots and rank of stacks for which memory ran out, and until when they are not tried."""

    @property
    def can_compute(self) -> bool:
        """True if the model's products can go through a stack without reading back to the host."""
        return self._base.routing.is_grouped or not (self._is_shared or self._has_experts)

    def can_hold(self, weights: Sequence[Weights]) -> bool:
        """True if steps of these weights can go through a stack: one that it `can_compute`, of a size it may have."""
        return self.can_compute and (self.fits(weights) or self._size(weights) is not None)

    def fits(self, weights: Sequence[Weights]) -> bool:
        """True if the present stack has the slots and the rank for these."""
        if self.groups is None:
            return False
        stack = self.groups.stack
        return len(self._slots(weights)) <= stack.num_slots and max(w.layout.spec.rank for w in weights) <= stack.rank

    def grow(self, weights: Sequence[Weights]) -> None:
        """Make a stack for these weights, which it `can_hold`.

        Raises:
            torch.OutOfMemoryError: there is no memory for it, and no such stack is held possible for a while.
        """
        size = self._size(weights)
        assert size is not None
        num_slots, rank = size
        device = self._base.device
        self.clear()  # the old stack goes before the next one comes
        try:
            stack = AdapterStack(self._base.sites, rank, num_slots, device, self._base.dtype)
            self.groups = Groups(stack, torch.zeros(num_slots, dtype=torch.int32, device=device))
        except torch.OutOfMemoryError:
            self._refused[size] = monotonic() + _REFUSED_SECONDS
            raise

    def clear(self) -> None:
        """Free the stack."""
        self.groups, self._serials = None, self._slots(())

    def hold(self, weights: Sequence[Weights]) -> None:
        """Have the slots hold at least these weights, which `fits` and which come by ascending serial."""
        assert self.groups is not None
        serials = self._slots(weights)
        if np.isin(serials, self._serials).all():
            return
        self.groups.stack.fill([None, *weights] if self._is_shared else weights)
        self._serials = serials

    def route(self, serials_N: Sequence[int], num_rows: int) -> None:
        """Say which rows go through which slot: those of these ascending serials, 0 for the bare base model.

        Rows after them, up to `num_rows`, are padding and go through the last slot in use.
        """
        assert self.groups is not None
        ends_K = np.full(self.groups.stack.num_slots, num_rows, np.int32)
        ends_K[: len(self._serials) - 1] = np.searchsorted(serials_N, self._serials[:-1], side="right")
        self.groups.ends_K.copy_(upload(ends_K, self._base.device))

    def _size(self, weights: Sequence[Weights]) -> tuple[int, int] | None:
        """Slots and rank of the next stack for these weights, None where it would be too large.

        Its adapters and its rank are powers of two, and no fewer than those of the last stack while there is room, so
        that few stacks follow each other.
        """
        if len(self._slots(weights)) > self._max_slots:
            return None
        rank = _power_of_two(max(w.layout.spec.rank for w in weights))
        sizes = [(min(_power_of_two(len(weights)) + self._is_shared, self._max_slots), rank)]
        if self.groups is not None:
            stack = self.groups.stack
            sizes.insert(0, (max(sizes[0][0], stack.num_slots), max(rank, stack.rank)))
        return next((size for size in sizes if self._may_take(*size)), None)

    def _may_take(self, num_slots: int, rank: int) -> bool:
        """True if a stack takes its share at most, and is smaller than any for which memory ran out lately."""
        now = monotonic()
        if any(now < until and num_slots >= s and rank >= r for (s, r), until in self._refused.items()):
            return False
        return has_room(stack_bytes(self._base.sites, rank, num_slots, self._base.dtype), self._base.device)

    def _slots(self, weights: Sequence[Weights]) -> NDArray[np.int64]:
        """Serials by slot for these weights; 0, which no weights have, for zeros."""
        return np.array([0] * self._is_shared + [w.serial for w in weights], np.int64)


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


def _power_of_two(number: int) -> int:
    """The least one that is not below."""
    return 1 << (number - 1).bit_length()
