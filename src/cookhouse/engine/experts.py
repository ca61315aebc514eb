"""The experts of a mixture layer, each with an adapter of its own.

`transformers` keeps the experts of a layer in two parameters: `gate_up_proj` and `down_proj`, one matrix per expert.

Legend: N packed positions, K experts per position, S = N · K pairs of position and expert, sorted by expert and then by
position, E experts, H hidden, I features in, O features out, R rank.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cookhouse.engine.lora import LoraSite, Routing, Segment, backward_matrices


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
class _Plan:
    """Who computes what in one layer of one pass; runs without pairs are left out."""

    order_S: Tensor
    """Where each pair was before sorting: position · K + choice."""
    runs: Sequence[_Run]
    shares: Sequence[tuple[Segment, Sequence[_Run]]]


@dataclass(frozen=True, slots=True)
class _Projection:
    """One frozen parameter of all experts, and the sites that share its features out."""

    weight_EOI: Tensor
    bias_EO: Tensor | None
    sites: Sequence[LoraSite]

    def adapted(self, segment: Segment) -> Iterator[LoraSite]:
        """Sites that the segment's adapter covers."""
        return (site for site in self.sites if site.name in segment.weights.views)


class LoraExperts(nn.Module):
    """Stands in for an experts module of `transformers` that has a gate; called as its experts interface says."""

    def __init__(self, base: Any, name: str, routing: Routing) -> None:
        super().__init__()
        for key, parameter in base.named_parameters(recurse=False):
            self.register_parameter(key, parameter)
        self._apply_gate: Callable[[Tensor], Tensor] = base._apply_gate
        self._is_transposed = bool(base.is_transposed)
        self._routing = routing
        self.sites = _sites(base, name)

    @staticmethod
    def can_replace(module: nn.Module) -> bool:
        """Whether a module keeps its experts in the way this class computes."""
        names = {key for key, _ in module.named_parameters(recurse=False)}
        wanted = {"gate_up_proj", "down_proj"}
        has_flags = all(hasattr(module, flag) for flag in ("is_transposed", "is_concatenated", "_apply_gate"))
        return has_flags and wanted <= names <= {*wanted, *(f"{key}_bias" for key in wanted)}

    def forward(self, hidden_NH: Tensor, experts_NK: Tensor, weights_NK: Tensor) -> Tensor:
        """Sum of the chosen experts' outputs (N, H), each times its routing weight."""
        plan = self._plan(experts_NK)
        # Repeated, permuted and summed, forward and backward: adding rows into place would leave the order of summing,
        # and so the rounding, open on a GPU.
        x_SH = hidden_NH.repeat_interleave(experts_NK.shape[1], 0).index_select(0, plan.order_S)
        gate_up = _product(x_SH, self._projection("gate_up_proj"), plan)
        out_SH = _product(self._apply_gate(gate_up), self._projection("down_proj"), plan)
        out_SH = out_SH.index_select(0, torch.argsort(plan.order_S))
        return (out_SH.view(*experts_NK.shape, -1) * weights_NK.unsqueeze(2)).sum(1).to(hidden_NH.dtype)

    def _projection(self, key: str) -> _Projection:
        weight = self.get_parameter(key)
        weight_EOI = weight.mT if self._is_transposed else weight
        bias_EO = getattr(self, f"{key}_bias", None)
        return _Projection(weight_EOI, bias_EO, [site for site in self.sites if site.parameter.endswith(f".{key}")])

    def _plan(self, experts_NK: Tensor) -> _Plan:
        num_rows, num_choices = experts_NK.shape
        experts_S, order_S = torch.sort(experts_NK.reshape(-1), stable=True)
        covered = {site.name for site in self.sites}
        segments = [s for s in self._routing.adapters.segments if not covered.isdisjoint(s.weights.views)]
        ranges = [(0, num_rows), *((s.start, s.stop) for s in segments)]
        # Keys ascend, so that the pairs of an expert and a range of positions lie between two of them.
        num_experts = self.get_parameter("down_proj").shape[0]
        firsts_E = torch.arange(num_experts, device=order_S.device) * num_rows
        wanted = torch.tensor(ranges, device=order_S.device).unsqueeze(1) + firsts_E.view(1, -1, 1)
        bounds = torch.searchsorted(experts_S * num_rows + order_S // num_choices, wanted).tolist()
        runs, *shares = [
            [_Run(expert, start, stop) for expert, (start, stop) in enumerate(pairs) if start < stop]
            for pairs in bounds
        ]
        return _Plan(order_S, runs, list(zip(segments, shares, strict=True)))


def _sites(base: Any, name: str) -> tuple[LoraSite, ...]:
    """Gate, up and down projections, whatever way the first two are laid side by side."""
    down_EOI = base.down_proj.mT if base.is_transposed else base.down_proj
    num_experts, hidden, inner = down_EOI.shape
    gate, up = slice(0, inner), slice(inner, 2 * inner)
    if not base.is_concatenated:
        gate, up = slice(0, None, 2), slice(1, None, 2)
    entries = [
        ("gate_proj", "gate_up_proj", hidden, inner, gate),
        ("up_proj", "gate_up_proj", hidden, inner, up),
        ("down_proj", "down_proj", inner, hidden, slice(None)),
    ]
    return tuple(
        LoraSite(
            name=f"{name}.{child}",
            part="mlp",
            in_features=in_features,
            out_features=out_features,
            num_experts=num_experts,
            parameter=f"{name}.{key}",
            rows=rows,
            is_transposed=bool(base.is_transposed),
        )
        for child, key, in_features, out_features, rows in entries
    )


def _product(x_SI: Tensor, projection: _Projection, plan: _Plan) -> Tensor:
    y_SO: Tensor = _ExpertsProduct.apply(x_SI, projection, plan)  # type: ignore[no-untyped-call]
    return y_SO


class _ExpertsProduct(torch.autograd.Function):
    """Adapted product expert by expert; like that of `LoraLinear`, backward adds straight into flat gradients."""

    @staticmethod
    def forward(ctx: Any, x_SI: Tensor, projection: _Projection, plan: _Plan) -> Tensor:
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
