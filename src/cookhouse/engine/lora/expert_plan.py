"""Plan of one mixture layer in one pass: products of all pairs of position and chosen expert, by grouped
products or expert by expert.

Legend: N packed positions, K experts per position, S = N · K pairs of position and expert, sorted by expert and then by
position, E experts, G groups of pairs (of one expert, and in it of one adapter), H hidden, I features in, O features
out, R rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from cookhouse.engine.kernels.products import matmul, wide_matmul
from cookhouse.engine.lora.grouped import GroupedProduct, Groups
from cookhouse.engine.lora.lora import LoraSite, Segment


@dataclass(frozen=True, slots=True)
class Pairs:
    """The experts that a router chose."""

    experts_S: Tensor
    order_S: Tensor
    """Where each pair was before sorting: position · K + choice."""
    back_S: Tensor
    """Where each pair is, in the order of positions: the inverse."""
    num_rows: int
    num_experts: int

    @classmethod
    def of(cls, experts_NK: Tensor, num_experts: int) -> "Pairs":
        """Pairs of all packed positions."""
        experts_S, order_S = torch.sort(experts_NK.reshape(-1), stable=True)
        return cls(experts_S, order_S, torch.argsort(order_S), experts_NK.shape[0], num_experts)

    @property
    def num_choices(self) -> int:
        """Experts per position."""
        return len(self.order_S) // self.num_rows

    def keys(self) -> Tensor:
        """Expert and position of each pair in one ascending number (S,)."""
        return self.experts_S * self.num_rows + self.order_S // self.num_choices

    def spread(self, hidden_NH: Tensor) -> Tensor:
        """The position's row of each pair (S, H)."""
        x_SH: Tensor = _Spread.apply(hidden_NH, self)  # type: ignore[no-untyped-call]
        return x_SH

    def restore(self, x_SH: Tensor) -> Tensor:
        """Rows of the pairs in the order of positions (N, K, H)."""
        out_SH: Tensor = _Restore.apply(x_SH, self)  # type: ignore[no-untyped-call]
        return out_SH.view(self.num_rows, -1, x_SH.shape[1])


# Both ways rows are only read from where they are, and then summed: adding them into place, as torch does backward,
# would leave the order of summing open on a GPU, and with it the rounding.
class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs = pairs
        return hidden_NH.index_select(0, pairs.order_S // pairs.num_choices)

    @staticmethod
    def backward(ctx: Any, dx_SH: Tensor) -> tuple[Tensor | None, ...]:
        dx_NKH = dx_SH.index_select(0, ctx.pairs.back_S).view(ctx.pairs.num_rows, -1, dx_SH.shape[1])
        return dx_NKH.sum(1), None


class _Restore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_SH: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs = pairs
        return x_SH.index_select(0, pairs.back_S)

    @staticmethod
    def backward(ctx: Any, dx_SH: Tensor) -> tuple[Tensor | None, ...]:
        return dx_SH.index_select(0, ctx.pairs.order_S), None


@dataclass(frozen=True, slots=True)
class Projection:
    """One frozen parameter of all experts, and the sites that share its features out."""

    weight_EOI: Tensor
    bias_EO: Tensor | None
    sites: Sequence[LoraSite]

    def adapted(self, segment: Segment) -> Iterator[LoraSite]:
        """Sites that the segment's adapter covers."""
        return (site for site in self.sites if site.name in segment.weights.views)


class ExpertPlan(Protocol):
    """Plan by which a layer's pairs are computed in a pass."""

    def product(self, x_SI: Tensor, projection: Projection) -> Tensor:
        """Adapted product (S, O) of each pair; its backward adds straight into the adapters' gradients."""


@dataclass(frozen=True, slots=True)
class GroupedPlan:
    """All experts by one grouped product, and so each site's adapters. Nothing is read back to the host."""

    experts_S: Tensor
    ends_E: Tensor
    """Where the pairs of each expert end, int32."""
    panels: Sequence[tuple[Groups, Tensor]]
    """Adapters, and where the pairs of each slot end within each expert (G,), int32."""

    @classmethod
    def of(cls, pairs: Pairs, panels: Sequence[Groups]) -> "GroupedPlan":
        """A plan for the pairs of a pass with these adapters."""
        experts_E = torch.arange(pairs.num_experts, device=pairs.experts_S.device)
        ends_E = torch.searchsorted(pairs.experts_S, experts_E, right=True, out_int32=True)
        # Keys ascend: a slot's rows are neighbors, and so are its pairs within an expert.
        firsts_E1 = (experts_E * pairs.num_rows).unsqueeze(1)
        wanted = [(firsts_E1 + groups.ends_K).flatten() for groups in panels]
        ends = [torch.searchsorted(pairs.keys(), wanted_G, out_int32=True) for wanted_G in wanted]
        return cls(pairs.experts_S, ends_E, list(zip(panels, ends, strict=True)))

    def product(self, x_SI: Tensor, projection: Projection) -> Tensor:
        """See `ExpertPlan`."""
        y_SO: Tensor = _GroupedExperts.apply(x_SI, projection, self)  # type: ignore[no-untyped-call]
        return y_SO

    def adapters(self, projection: Projection) -> list[tuple[slice, GroupedProduct]]:
        """The adapters of each site, with its features out."""
        found = [
            (site.rows, groups.at_groups(site.name, ends_G))
            for site in projection.sites
            for groups, ends_G in self.panels
        ]
        return [(rows, product) for rows, product in found if product is not None]


class _GroupedExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_SI: Tensor, projection: Projection, plan: GroupedPlan) -> Tensor:
        x_SI = x_SI.contiguous()
        y_SO = grouped_mm(x_SI, projection.weight_EOI.mT, offs=plan.ends_E)
        if projection.bias_EO is not None:
            y_SO.add_(projection.bias_EO.index_select(0, plan.experts_S))
        ctx.adapters = plan.adapters(projection)
        lows = [low for rows, product in ctx.adapters for low in product.apply(x_SI, y_SO[:, rows])]
        ctx.save_for_backward(x_SI, *lows)
        ctx.projection, ctx.plan = projection, plan
        return y_SO

    @staticmethod
    def backward(ctx: Any, dy_SO: Tensor) -> tuple[Tensor | None, ...]:
        x_SI, *lows = ctx.saved_tensors
        dy_SO = dy_SO.contiguous()
        dx_SI = grouped_mm(dy_SO, ctx.projection.weight_EOI, offs=ctx.plan.ends_E)
        for (rows, product), low_SR in zip(ctx.adapters, lows, strict=True):
            dy_site = dy_SO[:, rows]
            # Gate and up may take turns, and grouped products want neighbors.
            product.backward(x_SI, [low_SR], dy_site if dy_site.stride(1) == 1 else dy_site.contiguous(), dx_SI)
        return dx_SI, None, None


@dataclass(frozen=True, slots=True)
class _Run:
    """Pairs [start, stop) of one expert, all of one segment or all of the pass."""

    expert: int
    start: int
    stop: int

    @property
    def pairs(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Expert by expert, and in each segment by segment; runs without pairs are left out."""

    runs: Sequence[_Run]
    shares: Sequence[tuple[Segment, Sequence[_Run]]]

    @classmethod
    def of(cls, pairs: Pairs, segments: Sequence[Segment]) -> "LoopPlan":
        """A plan for the pairs of a pass with these segments."""
        device = pairs.experts_S.device
        ranges = [(0, pairs.num_rows), *((s.start, s.stop) for s in segments)]
        # Keys ascend, so that the pairs of an expert and a range of positions lie between two of them.
        firsts_E = torch.arange(pairs.num_experts, device=device) * pairs.num_rows
        wanted = torch.tensor(ranges, device=device).unsqueeze(1) + firsts_E.view(1, -1, 1)
        bounds = torch.searchsorted(pairs.keys(), wanted).tolist()
        runs, *shares = [
            [_Run(expert, start, stop) for expert, (start, stop) in enumerate(ends) if start < stop] for ends in bounds
        ]
        return cls(runs, list(zip(segments, shares, strict=True)))

    def product(self, x_SI: Tensor, projection: Projection) -> Tensor:
        """See `ExpertPlan`."""
        y_SO: Tensor = _LoopedExperts.apply(x_SI, projection, self)  # type: ignore[no-untyped-call]
        return y_SO


class _LoopedExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_SI: Tensor, projection: Projection, plan: LoopPlan) -> Tensor:
        y_SO = x_SI.new_empty(x_SI.shape[0], projection.weight_EOI.shape[1])
        for run in plan.runs:
            torch.mm(x_SI[run.pairs], projection.weight_EOI[run.expert].T, out=y_SO[run.pairs])
            if projection.bias_EO is not None:
                y_SO[run.pairs] += projection.bias_EO[run.expert]
        for segment, runs in plan.shares:
            rows = _Rows.of(runs)
            for site in projection.adapted(segment):
                a_ERI, b_EOR = segment.weights.views[site.name]
                low = rows.times(rows.take(x_SI), a_ERI.mT)
                rows.add(y_SO[:, site.rows], rows.times(low, b_EOR.mT), segment.weights.layout.scaling)
        ctx.save_for_backward(x_SI)
        ctx.projection, ctx.plan = projection, plan
        return y_SO

    @staticmethod
    def backward(ctx: Any, dy_SO: Tensor) -> tuple[Tensor | None, ...]:
        (x_SI,) = ctx.saved_tensors
        projection, plan = ctx.projection, ctx.plan
        dx_SI = torch.empty_like(x_SI)
        for run in plan.runs:
            torch.mm(dy_SO[run.pairs], projection.weight_EOI[run.expert], out=dx_SI[run.pairs])
        for segment, runs in plan.shares:
            rows = _Rows.of(runs)
            for site in projection.adapted(segment):
                _backward_site(segment, site, rows, x_SI, dy_SO[:, site.rows], dx_SI)
        return dx_SI, None, None


@dataclass(frozen=True, slots=True)
class _Rows:
    """The pairs of one segment, T of them, run after run; where runs follow each other, a slice of all pairs."""

    runs: Sequence[_Run]
    """Counted from the first of these pairs."""
    pairs: slice | Tensor
    """Their places among all pairs."""

    @classmethod
    def of(cls, runs: Sequence[_Run]) -> "_Rows":
        ends = list(accumulate((run.stop - run.start for run in runs), initial=0))
        own = [_Run(run.expert, start, stop) for run, (start, stop) in zip(runs, pairwise(ends), strict=True)]
        if all(one.stop == other.start for one, other in pairwise(runs)):
            return cls(own, slice(runs[0].start, runs[-1].stop) if runs else slice(0, 0))
        return cls(own, torch.cat([torch.arange(run.start, run.stop) for run in runs]))

    def take(self, x_SI: Tensor) -> Tensor:
        return x_SI[self.pairs]

    def add(self, total_SO: Tensor, y_TO: Tensor, factor: float) -> None:
        """Add to these pairs' rows, in place."""
        if isinstance(self.pairs, slice):
            total_SO[self.pairs].add_(y_TO, alpha=factor)
        else:
            total_SO.index_add_(0, self.pairs.to(total_SO.device), y_TO, alpha=factor)

    def times(self, x_TI: Tensor, matrices_EIO: Tensor) -> Tensor:
        """Rows by the matrix of their expert, or by the one that all share."""
        if len(matrices_EIO) == 1:
            return matmul(x_TI, matrices_EIO[0])
        y_TO = x_TI.new_empty(len(x_TI), matrices_EIO.shape[2])
        for run in self.runs:
            torch.mm(x_TI[run.pairs], matrices_EIO[run.expert], out=y_TO[run.pairs])
        return y_TO

    def add_sums(self, total_EIO: Tensor, x_TI: Tensor, y_TO: Tensor, factor: float) -> None:
        """Add the sums over each expert's rows, or over all where they share a matrix, in place."""
        if len(total_EIO) == 1:
            total_EIO[0].add_(wide_matmul(x_TI.T, y_TO), alpha=factor)
            return
        for run in self.runs:
            total_EIO[run.expert].add_(wide_matmul(x_TI[run.pairs].T, y_TO[run.pairs]), alpha=factor)


def _backward_site(segment: Segment, site: LoraSite, rows: _Rows, x_SI: Tensor, dy_SO: Tensor, dx_SI: Tensor) -> None:
    a_ERI, b_EOR = segment.weights.views[site.name]
    scaling = segment.weights.layout.scaling
    x_TI, dy_TO = rows.take(x_SI), rows.take(dy_SO)
    dlow_TR = rows.times(dy_TO, b_EOR).mul_(scaling)
    rows.add(dx_SI, rows.times(dlow_TR, a_ERI), 1.0)
    if segment.gradient is not None:
        da_ERI, db_EOR = segment.gradient[site.name]
        rows.add_sums(da_ERI, dlow_TR, x_TI, 1.0)
        rows.add_sums(db_EOR, dy_TO, rows.times(x_TI, a_ERI.mT), scaling)
