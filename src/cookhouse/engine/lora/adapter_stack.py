"""The adapters of many runs side by side, as grouped products take them.

Legend: K slots, E experts, G groups (the slots; for a mixture, slot after slot within expert after expert), I features
in, O features out, R rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from cookhouse.engine.lora.lora import LoraSite, Weights
from cookhouse.engine.memory import total_bytes

_ALIGNMENT = 8
"""Grouped products on a GPU want strides of whole 16 bytes: 8 features in bf16."""
_MAX_GROUPS = 1023
"""Groups of one product on a GPU (GroupMM.cu of torch lays them out by one block of threads)."""

_MOST_SHARE = 1 / 16
"""Of a GPU's memory, for one stack, or all of one pass. Every slot is as wide as the largest rank: without a bound one
adapter of high rank would have many others of low rank take as much as it does itself, each.
"""


def can_group(sites: Sequence[LoraSite], device: torch.device, dtype: torch.dtype) -> bool:
    """True if grouped products compute these sites and read nothing back to the host.

    In fp32 and on GPUs of other generations torch goes group by group, with a host read. A model with a size that is
    not aligned keeps to its segments as well: padding would copy every activation, and hardly a model has one.
    """
    if device.type != "cuda" or dtype != torch.bfloat16 or torch.cuda.get_device_capability(device)[0] not in (9, 10):
        return False
    features = [features for site in sites for features in (site.in_features, site.out_features)]
    return all(size % _ALIGNMENT == 0 for size in features) and max_slots(sites) > 0


def max_slots(sites: Sequence[LoraSite]) -> int:
    """Adapters that a stack over these sites can hold: each takes a group per expert."""
    return _MAX_GROUPS // max((site.num_experts or 1 for site in sites), default=1)


def stack_bytes(sites: Sequence[LoraSite], rank: int, num_slots: int, dtype: torch.dtype) -> int:
    """Bytes that a stack takes."""
    features = ((site.num_experts or 1) * (site.in_features + site.out_features) for site in sites)
    return num_slots * _aligned(rank) * sum(features) * dtype.itemsize


def has_room(num_bytes: int, device: torch.device) -> bool:
    """True if stacks may take so much on a GPU, by all its memory, whatever is free: grouped products round otherwise,
    and passes are the same each time, to the bit.
    """
    return device.type != "cuda" or num_bytes <= total_bytes(device) * _MOST_SHARE


class AdapterStack:
    """The matrices of up to `num_slots` adapters side by side: per site A (G, R, I) and scaling · B (G, O, R).

    Lower ranks are filled up with zeros; what experts share is there once for each. Scaling B is exact where the rank
    is a power of two; else it rounds B once more. `fill` writes in place, so that what was captured over a stack
    computes with the weights of the day.
    """

    def __init__(
        self, sites: Sequence[LoraSite], rank: int, num_slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All slots hold zeros, which adapt nothing. `rank` is the largest that fits; it is rounded up to alignment."""
        assert 1 <= num_slots <= max_slots(sites)
        self.rank = _aligned(rank)
        self.num_slots = num_slots
        self._serials: list[int | None] = [None] * num_slots
        shapes = [shape for site in sites for shape in self._shapes(site)]
        sizes = [prod(shape) for shape in shapes]
        flat = torch.zeros(sum(sizes), device=device, dtype=dtype)
        stacks = [part.view(shape) for part, shape in zip(flat.split_with_sizes(sizes), shapes, strict=True)]
        names = [site.name for site in sites]
        groups = [stack.flatten(0, -3) for stack in stacks]
        self._matrices = dict(zip(names, _pairs(groups), strict=True))
        by_slot = zip(*(stack.unbind(-3) for stack in stacks), strict=True)
        self._slots = [dict(zip(names, _pairs(matrices), strict=True)) for matrices in by_slot]
        """Of each slot the A (R, I) and B (O, R), or (E, R, I) and (E, O, R), of all sites."""

    def fill(self, weights_K: Sequence[Weights | None]) -> None:
        """Have slot k hold adapter k, or zeros where that is None; what a slot already holds is not written again.

        Slots after the last of them keep what they hold.
        """
        cleared: list[Tensor] = []
        copied: list[tuple[Tensor, Tensor, float]] = []
        for slot, weights in enumerate(weights_K):
            serial = None if weights is None else weights.serial
            if serial == self._serials[slot]:
                continue
            self._serials[slot] = serial
            matrices = self._slots[slot]
            if weights is None or weights.layout.spec.rank < self.rank or len(weights.views) < len(matrices):
                cleared += [matrix for pair in matrices.values() for matrix in pair]
            if weights is not None:
                copied += self._copies(matrices, weights)
        # A launch for many tensors each, where all are dense: the lower ranks within B are not, nor slots of experts.
        if cleared:
            torch._foreach_zero_(cleared)
        for is_dense in (True, False):
            chosen = [entry for entry in copied if entry[0].is_contiguous() == is_dense]
            if chosen:
                torch._foreach_copy_([to for to, _, _ in chosen], [source for _, source, _ in chosen])
            scaled = [(to, factor) for to, _, factor in chosen if factor != 1.0]
            if scaled:
                torch._foreach_mul_([to for to, _ in scaled], [factor for _, factor in scaled])

    def matrices(self, name: str) -> tuple[Tensor, Tensor] | None:
        """A (G, R, I) and scaling · B (G, O, R) of a site; None if the stack has none there."""
        return self._matrices.get(name)

    def _shapes(self, site: LoraSite) -> list[tuple[int, ...]]:
        groups = (self.num_slots,) if site.num_experts is None else (site.num_experts, self.num_slots)
        return [(*groups, self.rank, site.in_features), (*groups, site.out_features, self.rank)]

    def _copies(
        self, matrices: Mapping[str, tuple[Tensor, Tensor]], weights: Weights
    ) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Source, target within a slot and factor of each matrix of an adapter."""
        rank, scaling = weights.layout.spec.rank, weights.layout.scaling
        assert rank <= self.rank
        for name, (a, b) in weights.views.items():
            to_a, to_b = matrices[name]
            into_a, into_b = to_a[..., :rank, :], to_b[..., :rank]
            yield into_a, a.expand_as(into_a), 1.0
            yield into_b, b.expand_as(into_b), scaling


def _aligned(rank: int) -> int:
    return -(-rank // _ALIGNMENT) * _ALIGNMENT


def _pairs(matrices: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(matrices[::2], matrices[1::2], strict=True))
