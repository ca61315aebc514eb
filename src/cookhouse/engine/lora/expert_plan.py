"""Who computes what in one mixture layer of one pass: products of all pairs of position and chosen expert, by grouped
products or expert by expert.

Legend: N packed positions, K experts per position, S = N · K pairs of position and expert, sorted by expert and then by
position, E experts, G groups of pairs (of one expert, and in it of one adapter), H hidden, I features in, O features
out, R rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from cookhouse.engine.lora.grouped import GroupedProduct, Groups
from cookhouse.engine.lora.lora import LoraSite, Segment, backward_matrices


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
        """Those of all packed positions."""
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
    """How a layer's pairs are computed in a pass."""

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
            for site in projection.adapted(segment):
                a_ERI, b_EOR = segment.weights.views[site.name]
                scaling = segment.weights.layout.scaling
                for run in runs:
                    low = x_SI[run.pairs] @ a_ERI[run.expert].T
                    y_SO[run.pairs, site.rows].addmm_(low, b_EOR[run.expert].T, alpha=scaling)
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
            for site in projection.adapted(segment):
                for run in runs:
                    _backward_run(segment, site, run, x_SI, dy_SO, dx_SI)
        return dx_SI, None, None


def _backward_run(segment: Segment, site: LoraSite, run: _Run, x_SI: Tensor, dy_SO: Tensor, dx_SI: Tensor) -> None:
    a_RI, b_OR = (stack[run.expert] for stack in segment.weights.views[site.name])
    gradient = None
    if segment.gradient is not None:
        da_ERI, db_EOR = segment.gradient[site.name]
        gradient = da_ERI[run.expert], db_EOR[run.expert]
    x_RI = x_SI[run.pairs]
    backward_matrices(
        (a_RI, b_OR),
        segment.weights.layout.scaling,
        gradient,
        x_RI,
        x_RI @ a_RI.T,
        dy_SO[run.pairs, site.rows],
        dx_SI[run.pairs],
    )
