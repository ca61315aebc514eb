"""Sites of a model of `transformers` that adapters attach to: linear layers and experts are replaced by ones that carry
them.

Routers, norms, embeddings, attention sinks and short convolutions stay as they are. Any other weight matrix is refused
by name: an adapter that silently skipped it would train less than the user believes.

Legend: N packed positions, K experts per position, S = N · K pairs of position and expert, sorted by expert and then by
position, E experts, H hidden, I features in, O features out.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.lora.expert_plan import ExpertPlan, GroupedPlan, LoopPlan, Pairs, Projection
from cookhouse.engine.lora.grouped import Groups, Panels
from cookhouse.engine.lora.lora import AdapterLayout, LoraLinear, LoraSite, Routing
from cookhouse.errors import InputError
from cookhouse.models.base_files import BaseFiles

_NEVER_ADAPTED = ("gate", "router", "shared_expert_gate", "conv1d")
_PARTS = {
    "self_attn": "attn",
    "linear_attn": "attn",
    "mlp": "mlp",
    "block_sparse_moe": "mlp",
    "shared_mlp": "mlp",
}


def adapt(model: nn.Module, output: nn.Module, routing: Routing) -> tuple[LoraSite, ...]:
    """Replace every module that carries adapters, `output` being the output projection; return the sites.

    Raises:
        InputError: a weight matrix is in none of the modules that can carry an adapter or are never adapted.
    """
    sites: list[LoraSite] = []
    for name, module in list(model.named_modules()):
        parents, _, child = name.rpartition(".")
        if not _has_matrix(module) or isinstance(module, nn.Embedding) or _is_norm(module) or child in _NEVER_ADAPTED:
            continue
        part = "unembed" if module is output else _part(parents)
        replacement: LoraLinear | LoraExperts
        if part is not None and isinstance(module, nn.Linear):
            site = LoraSite(name=name, part=part, in_features=module.in_features, out_features=module.out_features)
            replacement = LoraLinear(module, site, routing)
            sites.append(site)
        elif part == "mlp" and LoraExperts.can_replace(module):
            replacement = LoraExperts(module, name, routing)
            sites.extend(replacement.sites)
        else:
            reason = "" if part is not None else f", since it is in none of {', '.join(_PARTS)}"
            raise InputError(
                f"module {name} ({type(module).__name__}) cannot carry an adapter{reason}; use a model whose "
                "attention, MLP and experts are linear layers or the stacked experts of transformers"
            )
        setattr(model.get_submodule(parents), child, replacement)
    return tuple(sites)


def choose_sites(sites: tuple[LoraSite, ...], spec: LoraSpec, base_files: BaseFiles) -> AdapterLayout:
    """The layout of an adapter that trains the parts which its spec names, over a base model of these files.

    Raises:
        InputError: it names none.
    """
    parts = {"attn": spec.train_attn, "mlp": spec.train_mlp, "unembed": spec.train_unembed}
    if not any(parts.values()):
        raise InputError("train_attn, train_mlp and train_unembed are all false; at least one must be true")
    return AdapterLayout(tuple(site for site in sites if parts[site.part]), spec, base_files)


def _has_matrix(module: nn.Module) -> bool:
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


def _is_norm(module: nn.Module) -> bool:
    """True if it is a norm. Those of heads may have a weight for each head, which is no matrix to multiply by."""
    return type(module).__name__.endswith("Norm")


def _part(parents: str) -> str | None:
    return next((_PARTS[parent] for parent in parents.split(".") if parent in _PARTS), None)


class LoraExperts(nn.Module):
    """Stands in for an experts module of `transformers` that has a gate; called as its experts interface says.

    `transformers` keeps the experts of a layer in two parameters: `gate_up_proj` and `down_proj`, one matrix per
    expert. A new adapter has, as at the hosted service, one A of gate and one of up and one B of down for all experts
    of a layer: the matrix on the side of the hidden dimension. The other one each expert has of its own.
    """

    def __init__(self, base: Any, name: str, routing: Routing) -> None:
        super().__init__()
        for key, parameter in base.named_parameters(recurse=False):
            self.register_parameter(key, parameter)
        self._apply_gate: Callable[[Tensor], Tensor] = base._apply_gate
        self._is_transposed = bool(base.is_transposed)
        self._routing = routing
        self.sites = _expert_sites(base, name)

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


def _expert_sites(base: Any, name: str) -> tuple[LoraSite, ...]:
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
