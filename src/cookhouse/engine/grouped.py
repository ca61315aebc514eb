"""Adapters of a pass by grouped products: one launch per matrix product however many adapters there are.

Legend: N rows of a pass (packed positions, or pairs of position and expert), C rows of a chunk, K slots of adapters,
E experts (1 for a plain layer), G = E · K groups (expert after expert, slot after slot in each), I features in,
O features out, R rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from cookhouse.engine.lora import LoraSite, Segment, Segments, SiteProduct, Weights
from cookhouse.engine.upload import upload

_ALIGNMENT = 8
"""Grouped products on a GPU want strides of whole 16 bytes: 8 features in bf16."""
_MAX_GROUPS = 1023
"""Groups of one product on a GPU (GroupMM.cu of torch lays them out by one block of threads)."""


def can_group(sites: Sequence[LoraSite], device: torch.device, dtype: torch.dtype) -> bool:
    """Whether grouped products compute these sites and read nothing back to the host.

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


def arrange(
    segments: Sequence[Segment], num_rows: int, sites: Sequence[LoraSite], device: torch.device
) -> "Groups | Segments":
    """The adapters of ascending segments of a pass, in a stack of their own; segment by segment where that is better:
    a single one, unless it goes through experts, and more than a stack can hold.
    """
    segments_K, stops_K = _fill_gaps(segments, num_rows)
    has_experts = any(site.num_experts for site in sites)
    if not segments or len(segments_K) > max_slots(sites) or (len(segments_K) == 1 and not has_experts):
        return Segments(segments)
    rank = max(segment.weights.layout.spec.rank for segment in segments)
    stack = AdapterStack(sites, rank, len(segments_K), device, segments[0].weights.flat.dtype)
    stack.fill([None if segment is None else segment.weights for segment in segments_K])
    return Groups(stack, _ends(stops_K, device), segments_K, stops_K)


def _fill_gaps(segments: Sequence[Segment], num_rows: int) -> tuple[list[Segment | None], list[int]]:
    """The segments and None for each stretch of rows between them, with where each ends."""
    segments_K: list[Segment | None] = []
    stops_K: list[int] = []
    stop = 0
    for segment in segments:
        if stop < segment.start:
            segments_K.append(None)
            stops_K.append(segment.start)
        segments_K.append(segment)
        stops_K.append(stop := segment.stop)
    if stop < num_rows:
        segments_K.append(None)
        stops_K.append(num_rows)
    return segments_K, stops_K


class AdapterStack:
    """The matrices of up to `num_slots` adapters side by side: per site A (G, R, I) and scaling · B (G, O, R).

    Lower ranks are filled up with zeros. Scaling B is exact where the rank is a power of two; else it rounds B once
    more. `fill` writes in place, so that what was captured over a stack computes with the weights of the day.
    """

    def __init__(
        self, sites: Sequence[LoraSite], rank: int, num_slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All slots hold zeros, which adapt nothing. `rank` is the largest that fits; it is rounded up to alignment."""
        assert 1 <= num_slots <= max_slots(sites)
        self.rank = -(-rank // _ALIGNMENT) * _ALIGNMENT
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
        """Where each matrix of an adapter goes within a slot, and its factor there."""
        rank, scaling = weights.layout.spec.rank, weights.layout.scaling
        assert rank <= self.rank
        for name, (a, b) in weights.views.items():
            to_a, to_b = matrices[name]
            yield to_a[..., :rank, :], a, 1.0
            yield to_b[..., :rank], b, scaling


@dataclass(frozen=True)
class Groups:
    """Adapters of a pass by the slots of a stack: rows [ends_K[k - 1], ends_K[k]) go through slot k.

    Nothing here reads from the device, so that a pass without gradient can be captured.
    """

    stack: AdapterStack
    ends_K: Tensor
    """int32, on the device, ascending; the last is the number of rows. A slot of zeros takes those of no adapter."""
    segments_K: Sequence[Segment | None] = ()
    """What the slots hold, None for zeros: gradients go there, and `at_rows` needs it. A pass to sample has none."""
    stops_K: Sequence[int] = ()
    """`ends_K` on the host, where there are `segments_K`."""

    @property
    def segments(self) -> Sequence[Segment]:
        """See `Adapters`."""
        return [segment for segment in self.segments_K if segment is not None]

    def at(self, name: str) -> SiteProduct | None:
        """See `Adapters`. A segment alone keeps to plain products, which are faster than one group."""
        if len(self.segments_K) == 1:
            return Segments(self.segments).at(name)
        return self.at_groups(name, self.ends_K)

    def at_groups(self, name: str, ends_G: Tensor) -> "GroupedProduct | None":
        """The adapters of a site whose rows lie expert by expert, and in each slot by slot, up to these ends."""
        matrices = self.stack.matrices(name)
        return None if matrices is None else GroupedProduct(name, *matrices, ends_G, self)

    def at_rows(self, rows_C: Tensor) -> "Groups":
        """See `Adapters`."""
        assert self.stops_K
        stops = torch.searchsorted(rows_C, torch.tensor(self.stops_K)).tolist()
        spans = zip(self.segments_K, [0, *stops[:-1]], stops, strict=True)
        segments_K = [None if segment is None else replace(segment, start=a, stop=b) for segment, a, b in spans]
        return Groups(self.stack, _ends(stops, self.ends_K.device), segments_K, stops)

    @cached_property
    def scaling(self) -> Tensor:
        """Factor of B A x of each slot (K, 1, 1), fp32."""
        scaling = [0.0 if segment is None else segment.weights.layout.scaling for segment in self.segments_K]
        return upload(np.array(scaling, np.float32), self.ends_K.device).view(-1, 1, 1)


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """The adapters of one site over rows that lie group by group. Rows may be slices of a wider tensor."""

    name: str
    a_GRI: Tensor
    b_GOR: Tensor
    """Times scaling."""
    ends_G: Tensor
    groups: Groups

    def apply(self, x_NI: Tensor, y_NO: Tensor) -> list[Tensor]:
        """See `SiteProduct`."""
        low_NR = grouped_mm(x_NI, self.a_GRI.mT, offs=self.ends_G)
        y_NO.add_(grouped_mm(low_NR, self.b_GOR.mT, offs=self.ends_G))
        return [low_NR]

    def backward(self, x_NI: Tensor, lows: Sequence[Tensor], dy_NO: Tensor, dx_NI: Tensor | None) -> None:
        """See `SiteProduct`."""
        (low_NR,) = lows
        dlow_NR = grouped_mm(dy_NO, self.b_GOR, offs=self.ends_G)
        if dx_NI is not None:
            dx_NI.add_(grouped_mm(dlow_NR, self.a_GRI, offs=self.ends_G))
        slots = [
            (slot, segment.weights.layout.spec.rank, segment.gradient[self.name])
            for slot, segment in enumerate(self.groups.segments_K)
            if segment is not None and segment.gradient is not None and self.name in segment.gradient
        ]
        if not slots:
            return
        # What the product leaves for a group without rows is not zero on every GPU.
        is_empty_G11 = (torch.diff(self.ends_G, prepend=self.ends_G.new_zeros(1)) == 0).view(-1, 1, 1)
        da_GRI = grouped_mm(dlow_NR.T, x_NI, offs=self.ends_G).masked_fill_(is_empty_G11, 0)
        db_GOR = grouped_mm(dy_NO.T, low_NR, offs=self.ends_G).masked_fill_(is_empty_G11, 0)
        num_slots = self.groups.stack.num_slots
        da_EKRI = da_GRI.float().view(-1, num_slots, *da_GRI.shape[1:])
        db_EKOR = db_GOR.view(-1, num_slots, *db_GOR.shape[1:]) * self.groups.scaling
        targets, found = [], []
        for slot, rank, (a, b) in slots:
            targets += [a, b]
            found += [da_EKRI[:, slot, :rank].view_as(a), db_EKOR[:, slot, :, :rank].view_as(b)]
        torch._foreach_add_(targets, found)


def _pairs(matrices: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(matrices[::2], matrices[1::2], strict=True))


def _ends(stops: Sequence[int], device: torch.device) -> Tensor:
    return upload(np.array(stops, np.int32), device)
