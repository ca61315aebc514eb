"""Sites of a model of `transformers` that adapters attach to: linear layers and experts are replaced by ones that carry
them.

Routers, norms, embeddings, attention sinks and short convolutions stay as they are. Any other weight matrix is refused
by name: an adapter that silently skipped it would train less than the user believes.
"""

from torch import nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.lora.experts import LoraExperts
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
