"""Which adapters sit in the slots of the stack that decoding steps are captured over.

Legend: N rows of a step, K slots.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cookhouse.engine.adapter_stack import AdapterStack, max_slots
from cookhouse.engine.base_model import BaseModel
from cookhouse.engine.grouped import Groups
from cookhouse.engine.lora import Weights
from cookhouse.engine.upload import upload


class AdapterBank:
    """Slots hold adapters by ascending serial: rows that are sorted by it lie in the order of the slots.

    Weights are copied in when a step needs them and are not there; those it does not need make room then. No weights
    are kept alive.
    """

    def __init__(self, base: BaseModel, *, is_shared: bool) -> None:
        """A shared bank is for rows of several adapters and of the bare base model, which go through zeros in slot 0.

        One that is not has a single slot, for all rows: its products are ordinary ones, which are faster.
        """
        self._base = base
        self._max_slots = max_slots(base.sites)
        self._has_experts = any(site.num_experts for site in base.sites)
        self._is_shared = is_shared
        self._serials = self._slots(())
        """Of the slots in use."""
        self.groups: Groups | None = None
        """What a captured step goes through. `grow` alone replaces it."""

    def can_hold(self, weights: Sequence[Weights]) -> bool:
        """Whether the model's products can go through a stack of as many slots, without reading back to the host."""
        is_grouped = self._is_shared or self._has_experts
        return (self._base.routing.is_grouped or not is_grouped) and len(self._slots(weights)) <= self._max_slots

    def fits(self, weights: Sequence[Weights]) -> bool:
        """Whether the present stack has the slots and the rank for these."""
        if self.groups is None:
            return False
        stack = self.groups.stack
        return len(self._slots(weights)) <= stack.num_slots and max(w.layout.spec.rank for w in weights) <= stack.rank

    def grow(self, weights: Sequence[Weights]) -> None:
        """Make a stack for these weights, no smaller than the last one. Its adapters and its rank are powers of two, so
        that few stacks follow each other and neither takes more than twice the memory that is needed.
        """
        num_slots = _power_of_two(len(weights)) + self._is_shared
        rank = max(w.layout.spec.rank for w in weights)
        if self.groups is not None:
            num_slots = max(num_slots, self.groups.stack.num_slots)
            rank = max(rank, self.groups.stack.rank)
        num_slots = min(num_slots, self._max_slots)
        device = self._base.device
        # The old stack goes before the next one comes.
        self.groups, self._serials = None, self._slots(())
        stack = AdapterStack(self._base.sites, _power_of_two(rank), num_slots, device, self._base.dtype)
        self.groups = Groups(stack, torch.zeros(num_slots, dtype=torch.int32, device=device))

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

    def _slots(self, weights: Sequence[Weights]) -> NDArray[np.int64]:
        """Serials by slot for these weights; 0, which no weights have, for zeros."""
        return np.array([0] * self._is_shared + [w.serial for w in weights], np.int64)


def _power_of_two(number: int) -> int:
    """The least one that is not below."""
    return 1 << (number - 1).bit_length()
