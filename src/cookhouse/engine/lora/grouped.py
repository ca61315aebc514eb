"""Adapters of a pass by grouped products: one launch per matrix product however many adapters there are.

Legend: N rows of a pass (packed positions, or pairs of position and expert), C rows of a chunk, K slots of adapters,
E experts (1 for a plain layer), G = E · K groups (expert after expert, slot after slot in each), I features in,
O features out, R rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from cookhouse.engine.kernels.products import can_widen, wide_matmul
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.adapter_stack import AdapterStack, has_room, max_slots, stack_bytes
from cookhouse.engine.lora.lora import LoraSite, Segment, Segments, SiteProduct, add_product


def arrange(
    segments: Sequence[Segment], num_rows: int, sites: Sequence[LoraSite], device: torch.device
) -> "Groups | Panels | Segments":
    """The adapters of ascending segments of a pass, in stacks of their own.

    A single one keeps to its segment unless it goes through experts; so do those of more than 341 experts, of which a
    stack has no room for an adapter between others, and several that would take too much memory side by side, or
    more than there is.
    """
    has_experts = any(site.num_experts for site in sites)
    is_alone = [(segment.start, segment.stop) for segment in segments] == [(0, num_rows)]
    if not segments or (is_alone and not has_experts):
        return Segments(segments)
    plans: list[_StackPlan] = []
    rest, most = segments, max_slots(sites)
    while rest:
        laid = ((count, _fill_gaps(rest[:count], num_rows)) for count in range(len(rest), 0, -1))
        count, slots = next(((count, slots) for count, slots in laid if len(slots) <= most), (0, []))
        if not slots:
            return Segments(segments)
        plans.append(_StackPlan.of(slots, sites))
        rest = rest[count:]
    # A single adapter's stack is as wide as its own rank, and grouped products are how its experts are fast.
    if len(segments) > 1 and not has_room(sum(plan.num_bytes for plan in plans), device):
        return Segments(segments)
    try:
        panels = [plan.make(device) for plan in plans]
    except torch.OutOfMemoryError:
        return Segments(segments)  # which take nothing besides the weights
    return panels[0] if len(panels) == 1 else Panels(panels)


_Slots = Sequence[tuple[Segment | None, int]]


def _fill_gaps(segments: Sequence[Segment], num_rows: int) -> _Slots:
    """The segments, and None for each stretch of rows that none of them has, each with where it ends."""
    slots: list[tuple[Segment | None, int]] = []
    stop = 0
    for segment in segments:
        if stop < segment.start:
            slots.append((None, segment.start))
        slots.append((segment, stop := segment.stop))
    if stop < num_rows:
        slots.append((None, num_rows))
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class _StackPlan:
    """A stack that is to be made."""

    slots: _Slots
    sites: Sequence[LoraSite]
    """Those that any of its adapters covers."""
    rank: int
    dtype: torch.dtype

    @classmethod
    def of(cls, slots: _Slots, sites: Sequence[LoraSite]) -> "_StackPlan":
        """One for these slots, of which some hold an adapter."""
        held = [segment.weights for segment, _ in slots if segment is not None]
        return cls(
            slots=slots,
            sites=[site for site in sites if any(site.name in weights.views for weights in held)],
            rank=max(weights.layout.spec.rank for weights in held),
            dtype=held[0].flat.dtype,
        )

    @property
    def num_bytes(self) -> int:
        """Bytes that it will take."""
        return stack_bytes(self.sites, self.rank, len(self.slots), self.dtype)

    def make(self, device: torch.device) -> "Groups":
        """The stack, filled, and its groups."""
        segments_K, stops_K = zip(*self.slots, strict=True)
        stack = AdapterStack(self.sites, self.rank, len(self.slots), device, self.dtype)
        stack.fill([None if segment is None else segment.weights for segment in segments_K])
        return Groups(stack, _ends(stops_K, device), segments_K, stops_K)


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

    @property
    def panels(self) -> "Sequence[Groups]":
        """All groups of the pass."""
        return (self,)

    def at(self, name: str) -> SiteProduct | None:
        """See `Adapters`."""
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
class Panels:
    """More adapters than one stack can hold: stacks that each hold some of them, applied in turn to all rows."""

    panels: Sequence[Groups]

    @property
    def segments(self) -> Sequence[Segment]:
        """See `Adapters`."""
        return [segment for groups in self.panels for segment in groups.segments]

    def at(self, name: str) -> SiteProduct | None:
        """See `Adapters`."""
        products = [product for groups in self.panels if (product := groups.at(name)) is not None]
        return _InTurn(products) if products else None

    def at_rows(self, rows_C: Tensor) -> "Panels":
        """See `Adapters`."""
        return Panels([groups.at_rows(rows_C) for groups in self.panels])


@dataclass(frozen=True, slots=True)
class _InTurn:
    products: Sequence[SiteProduct]

    def apply(self, x_NI: Tensor, y_NO: Tensor) -> list[Tensor]:
        return [low_NR for product in self.products for low_NR in product.apply(x_NI, y_NO)]

    def backward(self, x_NI: Tensor, lows: Sequence[Tensor], dy_NO: Tensor, dx_NI: Tensor | None) -> None:
        for product, low_NR in zip(self.products, lows, strict=True):
            product.backward(x_NI, [low_NR], dy_NO, dx_NI)


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
        (a_GRI, a_ends_G), (b_GOR, b_ends_G) = self._matrices
        low_NR = _product(x_NI, a_GRI.mT, a_ends_G)
        _add_product(y_NO, low_NR, b_GOR.mT, b_ends_G)
        return [low_NR]

    @property
    def _matrices(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """A and B, each with the ends of its groups: one of all rows where the experts of a single adapter share it."""
        stacks = (self.a_GRI, self.ends_G), (self.b_GOR, self.ends_G)
        if len(self.groups.segments_K) != 1 or self.groups.segments_K[0] is None:
            return stacks
        a, b = (
            (stack[:1], ends[-1:]) if view.dim() == 3 and len(view) == 1 else (stack, ends)
            for view, (stack, ends) in zip(self.groups.segments_K[0].weights.views[self.name], stacks, strict=True)
        )
        return a, b

    def backward(self, x_NI: Tensor, lows: Sequence[Tensor], dy_NO: Tensor, dx_NI: Tensor | None) -> None:
        """See `SiteProduct`."""
        (low_NR,) = lows
        (a_GRI, a_ends_G), (b_GOR, b_ends_G) = self._matrices
        dlow_NR = _product(dy_NO, b_GOR, b_ends_G)
        if dx_NI is not None:
            _add_product(dx_NI, dlow_NR, a_GRI, a_ends_G)
        slots = [
            (slot, segment.weights.layout.spec.rank, segment.gradient[self.name])
            for slot, segment in enumerate(self.groups.segments_K)
            if segment is not None and segment.gradient is not None and self.name in segment.gradient
        ]
        if not slots:
            return
        da_GRI = _sums(dlow_NR, x_NI, a_ends_G)
        db_GOR = _sums(dy_NO, low_NR, b_ends_G)
        num_slots = self.groups.stack.num_slots
        da_EKRI = da_GRI.float().view(-1, num_slots, *da_GRI.shape[1:])
        db_EKOR = db_GOR.view(-1, num_slots, *db_GOR.shape[1:]) * self.groups.scaling
        targets, found = [], []
        for slot, rank, (a, b) in slots:
            targets += [a, b]
            found += [_of_experts(da_EKRI[:, slot, :rank], a), _of_experts(db_EKOR[:, slot, :, :rank], b)]
        torch._foreach_add_(targets, found)


# A single group that has all rows is an ordinary product, which is faster.
def _product(x: Tensor, y: Tensor, ends_G: Tensor) -> Tensor:
    """Groups of rows (N, I) by matrices (G, I, O), or sums over the rows of each group of columns (I, N) by (N, O)."""
    if len(ends_G) > 1:
        return grouped_mm(x, y, offs=ends_G)
    return (x @ y).unsqueeze(0) if y.dim() == 2 else x @ y[0]


def _sums(x_NI: Tensor, y_NO: Tensor, ends_G: Tensor) -> Tensor:
    """Sums over the rows of each group (G, I, O); zero of a group without rows, as the product is not on every GPU."""
    is_empty_G11 = (torch.diff(ends_G, prepend=ends_G.new_zeros(1)) == 0).view(-1, 1, 1)
    is_wide = len(ends_G) == 1 and can_widen(x_NI)  # of several groups torch gives bf16 alone
    sums_GIO = wide_matmul(x_NI.T, y_NO).unsqueeze(0) if is_wide else _product(x_NI.T, y_NO, ends_G)
    return sums_GIO.masked_fill_(is_empty_G11, 0)


def _of_experts(found_EXY: Tensor, like: Tensor) -> Tensor:
    """A gradient of all experts as a matrix has it that they may share."""
    is_shared = like.dim() == 3 and len(like) < len(found_EXY)
    return found_EXY.sum(0, keepdim=True) if is_shared else found_EXY.view_as(like)


def _add_product(total_NO: Tensor, x_NI: Tensor, matrices_GIO: Tensor, ends_G: Tensor) -> None:
    """Add such a product in place."""
    if len(ends_G) > 1:
        total_NO.add_(grouped_mm(x_NI, matrices_GIO, offs=ends_G))
    else:
        add_product(total_NO, x_NI, matrices_GIO[0])


def _ends(stops: Sequence[int], device: torch.device) -> Tensor:
    return upload(np.array(stops, np.int32), device)
