"""The matrices of a PEFT adapter as those of a base model's sites.

Legend: I features in, O features out, R rank; of experts all are stacked, (E, …).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from cookhouse.engine.files.external_folder import OUTPUT, own_name
from cookhouse.engine.files.peft_experts import ExpertParameter, expert_parameters
from cookhouse.engine.files.peft_folder import PeftAdapter, first_names
from cookhouse.engine.lora.lora import LoraSite
from cookhouse.errors import InputError

_TEXT_PART = "model.language_model."
_OTHER_NAMES = ("language_model.model.", "language_model.", "model.")
"""What the text part of a model that takes images is called in older checkpoints, and where it is loaded alone."""


class SiteMatrices(NamedTuple):
    """Of one site."""

    a: Tensor
    """(R, I)"""
    b: Tensor
    """(O, R)"""
    scaling: float
    """Factor of B A x."""


def match_peft(
    folder: Path, adapter: PeftAdapter, base_model: str, sites: Mapping[str, LoraSite]
) -> dict[str, SiteMatrices]:
    """Every matrix of an adapter by its site.

    Raises:
        InputError: it adapts something else, or its matrices have other shapes than the sites.
    """
    parameters = {parameter.wrapper: parameter for parameter in _targeted(adapter, sites)}
    linear = {name: site for name, site in sites.items() if site.num_experts is None}
    external = {own_name(site): site for site in sites.values() if site.num_experts is not None or site.name == OUTPUT}
    at = linear | external
    known = names_here(adapter.matrices, {*at, *parameters})
    unknown = sorted(name for name, here in known.items() if here not in at and here not in parameters)
    if unknown:
        raise InputError(
            f"{folder} adapts {first_names(unknown)}, which {base_model} has not, or not as a linear layer that "
            "carries an adapter; give the base model that the adapter was trained over"
        )
    modules = [at[here].name if here in at else here for here in known.values()]
    here, number = Counter(modules).most_common(1)[0]
    if number > 1:
        raise InputError(f"{folder} adapts {here} under {number} names; leave one of them in it")
    found: dict[str, SiteMatrices] = {}
    for name, (a, b) in adapter.matrices.items():
        here = known[name]
        parameter = parameters.get(here)
        if parameter is None:
            site = at[here]
            _check(folder, name, site, a, b)
            found[site.name] = SiteMatrices(*site.expand((a, b)), _scaling(folder, adapter, name, a.shape[-2]))
        else:
            found |= _part(folder, adapter, parameter, name, a, b)
    return found


def names_here(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Names of modules as the whole base model has them: of a model that takes images there are others as well."""
    found = {}
    for name in names:
        others = [_TEXT_PART + name.removeprefix(old) for old in _OTHER_NAMES if name.startswith(old)]
        candidates = [name, *others, name.removeprefix("language_model.")]
        found[name] = next((candidate for candidate in candidates if candidate in known), name)
    return found


def _targeted(adapter: PeftAdapter, sites: Mapping[str, LoraSite]) -> list[ExpertParameter]:
    ends = tuple(f".{name}" for name in adapter.parameters)
    return expert_parameters([site for site in sites.values() if ends and f".{site.parameter}".endswith(ends)])


def _part(
    folder: Path, adapter: PeftAdapter, parameter: ExpertParameter, name: str, a_FI: Tensor, b_OF: Tensor
) -> dict[str, SiteMatrices]:
    first = parameter.sites[0]
    num_out = sum(site.out_features for site in parameter.sites)
    _check(folder, name, replace(first, out_features=num_out, num_experts=None), a_FI, b_OF)
    assert first.num_experts is not None
    rank, rest = divmod(a_FI.shape[0], first.num_experts)
    if rest:
        raise InputError(
            f"{folder}: {name} has {a_FI.shape[0]} rows in lora_A, and {first.num_experts} experts share them"
        )
    wrapped = f"{name.replace('.base_layer', '')}.{first.parameter.rpartition('.')[2]}"
    scaling = _scaling(folder, adapter, wrapped, rank)
    return {site: SiteMatrices(a, b, scaling) for site, (a, b) in parameter.part(a_FI, b_OF).items()}


def _scaling(folder: Path, adapter: PeftAdapter, name: str, rank: int) -> float:
    """Of a module or parameter by the name that it had where the adapter was made."""
    wanted = adapter.ranks.rank_of(name)
    if rank != wanted:
        raise InputError(
            f"{folder}: {name} has matrices of rank {rank}, which is not of rank {wanted}, as its config says"
        )
    return adapter.ranks.scaling(name)


def _check(folder: Path, name: str, site: LoraSite, a: Tensor, b: Tensor) -> None:
    """See that matrices are those of a site; each of experts is one per expert or one for all of them."""
    num_in, num_out, experts = site.in_features, site.out_features, site.num_experts
    of_experts = (experts is not None) + 2
    is_stack = a.dim() == b.dim() == of_experts and {*a.shape[:-2], *b.shape[:-2]} <= {1, experts}
    if not is_stack or (a.shape[-1], b.shape[-2]) != (num_in, num_out) or a.shape[-2] != b.shape[-1]:
        each = "" if experts is None else f"1 or {experts}, "
        raise InputError(
            f"{folder}: {name} has lora_A of shape {tuple(a.shape)} and lora_B of {tuple(b.shape)}; the base model "
            f"needs ({each}rank, {num_in}) and ({each}{num_out}, rank)"
        )
