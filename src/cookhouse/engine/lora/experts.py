"""The experts of a mixture layer, with their adapters.

`transformers` keeps the experts of a layer in two parameters: `gate_up_proj` and `down_proj`, one matrix per expert. A
new adapter has, as at the hosted service, one A of gate and one of up and one B of down for all experts of a layer: the
matrix on the side of the hidden dimension. The other one each expert has of its own.

Legend: N packed positions, K experts per position, S = N · K pairs of position and expert, sorted by expert and then by
position, E experts, H hidden, I features in, O features out.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from cookhouse.engine.lora.expert_plan import ExpertPlan, GroupedPlan, LoopPlan, Pairs, Projection
from cookhouse.engine.lora.grouped import Groups, Panels
from cookhouse.engine.lora.lora import LoraSite, Routing


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
        """True if a module keeps its experts in the way this class computes."""
        names = {key for key, _ in module.named_parameters(recurse=False)}
        wanted = {"gate_up_proj", "down_proj"}
        has_flags = all(hasattr(module, flag) for flag in ("is_transposed", "_apply_gate"))
        return has_flags and wanted <= names <= {*wanted, *(f"{key}_bias" for key in wanted)}

    def forward(self, hidden_NH: Tensor, experts_NK: Tensor, weights_NK: Tensor) -> Tensor:
        """Sum of the chosen experts' outputs (N, H), each times its routing weight."""
        pairs = Pairs.of(experts_NK, self.get_parameter("down_proj").shape[0])
        plan = self._plan(pairs)
        gate_up = plan.product(pairs.spread(hidden_NH), self._projection("gate_up_proj"))
        out_SH = plan.product(self._apply_gate(gate_up), self._projection("down_proj"))
        return (pairs.restore(out_SH) * weights_NK.unsqueeze(2)).sum(1).to(hidden_NH.dtype)

    def _projection(self, key: str) -> Projection:
        weight = self.get_parameter(key)
        weight_EOI = weight.mT if self._is_transposed else weight
        bias_EO = getattr(self, f"{key}_bias", None)
        return Projection(weight_EOI, bias_EO, [site for site in self.sites if site.parameter.endswith(f".{key}")])

    def _plan(self, pairs: Pairs) -> ExpertPlan:
        adapters = self._routing.adapters
        if isinstance(adapters, Groups | Panels):
            return GroupedPlan.of(pairs, adapters.panels)
        covered = {site.name for site in self.sites}
        segments = [segment for segment in adapters.segments if not covered.isdisjoint(segment.weights.views)]
        if self._routing.is_grouped and not segments:
            return GroupedPlan.of(pairs, ())
        return LoopPlan.of(pairs, segments)


def _is_interleaved(base: Any) -> bool:
    """True if features of gate and up alternate. Without a flag for it, as in `transformers` 5.0, those that are
    transposed do: they are gpt-oss's alone.
    """
    return not getattr(base, "is_concatenated", not base.is_transposed)


def _sites(base: Any, name: str) -> tuple[LoraSite, ...]:
    """Gate, up and down projections, whatever way the first two are laid side by side."""
    down_EOI = base.down_proj.mT if base.is_transposed else base.down_proj
    num_experts, hidden, inner = down_EOI.shape
    gate, up = slice(0, inner), slice(inner, 2 * inner)
    if _is_interleaved(base):
        gate, up = slice(0, None, 2), slice(1, None, 2)
    entries = [
        ("gate_proj", "gate_up_proj", hidden, inner, gate, "A"),
        ("up_proj", "gate_up_proj", hidden, inner, up, "A"),
        ("down_proj", "down_proj", inner, hidden, slice(None), "B"),
    ]
    return tuple(
        LoraSite(
            name=f"{name}.{child}",
            part="mlp",
            in_features=in_features,
            out_features=out_features,
            num_experts=num_experts,
            shared=shared,
            parameter=f"{name}.{key}",
            rows=rows,
            is_transposed=bool(base.is_transposed),
        )
        for child, key, in_features, out_features, rows, shared in entries
    )
