"""Slots of the stack that decoding steps are captured over, and the adapters in them.

Legend: N rows of a step, K slots.
"""

from collections.abc import Sequence
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.adapter_stack import AdapterStack, has_room, max_slots, stack_bytes
from cookhouse.engine.lora.grouped import Groups
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.model.base_model import BaseModel

_REFUSED_SECONDS = 60.0
"""A stack for which memory ran out is not tried again for so long: each try costs all graphs, and shortages pass."""


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
        """What a captured step goes through; `grow` and `clear` replace it."""
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


def _power_of_two(number: int) -> int:
    """The least one that is not below."""
    return 1 << (number - 1).bit_length()
