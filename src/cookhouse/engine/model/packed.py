"""Weights in the layout that compiled products read fastest, made once: in addition to the weights as they came, or in
place of them.

Legend: O features out, I features in.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import nan

import torch
from torch import Tensor

from cookhouse.engine.heap import give_back

_LANES = 16
_MOST_FREED = 2**26
"""Bytes of originals that the heap may hold while others are packed."""


class PackedWeights:
    """Packed copies of the matrices of linear layers, those that the layout can hold.

    They do not follow later changes: of weights that are trained there are none.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        """Weights (O, I), tied ones once or more often."""
        self._weights = {id(weight): weight for weight in weights if _can_pack(weight)}
        self._packed: dict[int, Tensor] = {}
        self._dropped: set[int] = set()
        """Weights without their originals."""

    @property
    def num_bytes(self) -> int:
        """Bytes that the copies take, made or not."""
        return sum(weight.numel() * weight.itemsize for weight in self._weights.values())

    @property
    def are_made(self) -> bool:
        return bool(self._packed)

    def of(self, weight: Tensor) -> Tensor | None:
        """The packed copy of a weight; None where there is none."""
        return self._packed.get(id(weight))

    def is_dropped(self, weight: Tensor) -> bool:
        """True if a weight has lost its original."""
        return id(weight) in self._dropped

    def make(self, *, drops_originals: bool = False) -> None:
        """Pack all; without their originals weights keep their shape, and every number that is read of one is NaN."""
        num_freed = 0
        for key, weight in self._weights.items():
            if key not in self._packed:
                self._packed[key] = pack(weight.detach())
            if drops_originals and key not in self._dropped:
                num_freed += weight.nbytes
                weight.data = _nothing_like(weight)
                self._dropped.add(key)
            if num_freed > _MOST_FREED:  # what comes next rarely fits into the holes
                give_back()
                num_freed = 0
        if num_freed:
            give_back()

    def rows(self, weight: Tensor, rows_N: Tensor) -> Tensor | None:
        """Rows (N, I) of a weight whose original was dropped; None of any other."""
        if not self.is_dropped(weight):
            return None
        packed = self._packed[id(weight)]
        return packed[rows_N // _LANES, :, rows_N % _LANES].flatten(1)

    def drop(self) -> None:
        """Let go of the copies, but for those that stand in place of their originals."""
        self._packed = {key: packed for key, packed in self._packed.items() if key in self._dropped}

    @contextmanager
    def unpacked(self, weight: Tensor) -> Iterator[None]:
        """Have a weight whose original was dropped as it was, for a while."""
        if not self.is_dropped(weight):
            yield
            return
        weight.data = unpack(self._packed[id(weight)])
        try:
            yield
        finally:
            weight.data = _nothing_like(weight)


def pack(weight_OI: Tensor) -> Tensor:
    """A weight as `Linear` of model.h has it when `is_packed`: (O / 16, I, 16), in bf16 (O / 16, I / 2, 16, 2)."""
    (out, in_), together = weight_OI.shape, neighbors(weight_OI)
    return weight_OI.reshape(out // _LANES, _LANES, in_ // together, together).transpose(1, 2).contiguous()


def unpack(packed: Tensor) -> Tensor:
    """The weight (O, I) that was packed."""
    panels, groups, lanes, together = packed.shape
    return packed.transpose(1, 2).reshape(panels * lanes, groups * together)


def neighbors(weight: Tensor) -> int:
    """Features that lie side by side in a packed weight."""
    return 1 if weight.dtype == torch.float32 else 2


def _can_pack(weight: Tensor) -> bool:
    return weight.dim() == 2 and weight.shape[0] % _LANES == 0 and weight.shape[1] % neighbors(weight) == 0


def _nothing_like(weight: Tensor) -> Tensor:
    return weight.new_full((), nan).expand(weight.shape)
