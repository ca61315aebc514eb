"""Adapters of single experts in the form of the `peft` library.

`transformers` keeps the experts of a layer in stacked parameters, and PEFT adapts each as a whole, by
`target_parameters`: W_e + scaling · B_e A_e. Gate and up projections are rows of one parameter, so their two adapters
are one of twice the rank, with B zero where the other's rows are. A module is wrapped once for each of its parameters,
in their order: what is wrapped first is found in the `base_layer` of what is wrapped next.

Legend: E experts, R rank of a site, S rank of a parameter, I features in, O features out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from cookhouse.engine.lora.lora import LoraSite


@dataclass(frozen=True, slots=True)
class ExpertParameter:
    """A stacked parameter of a layer's experts, with the sites that are rows of it."""

    sites: Sequence[LoraSite]
    depth: int
    """How many wrappers PEFT puts around its own."""

    @property
    def target(self) -> str:
        """By which PEFT finds it in every layer."""
        return ".".join(self.sites[0].parameter.split(".")[-3:])

    @property
    def wrapper(self) -> str:
        """The name of its wrapper in PEFT's model."""
        return self.sites[0].parameter.rpartition(".")[0] + ".base_layer" * self.depth

    def join(self, views: Mapping[str, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """A (E · S, I) and B (O, S · E) of the adapters of its sites, each A (E, R, I) and B (E, O, R) or shared."""
        pairs = [site.expand(views[site.name]) for site in self.sites]
        a_ESI = torch.cat([a_ERI for a_ERI, _ in pairs], 1)
        num_out = sum(site.out_features for site in self.sites)
        b_EOS = a_ESI.new_zeros(a_ESI.shape[0], num_out, a_ESI.shape[1])
        first = 0
        for site, (_, b_EOR) in zip(self.sites, pairs, strict=True):
            b_EOS[:, site.rows, first : first + b_EOR.shape[2]] = b_EOR
            first += b_EOR.shape[2]
        return a_ESI.flatten(0, 1), b_EOS.permute(1, 2, 0).flatten(1)

    def part(self, a_FI: Tensor, b_OF: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """A (E, R, I) and B (E, O, R) of each site; F is S · E. R is S, or a share of it where B of each site is zero
        but for its own share, as `join` leaves it.
        """
        num_experts = self.sites[0].num_experts
        assert num_experts is not None
        a_ESI = a_FI.view(num_experts, -1, a_FI.shape[1])
        b_EOS = b_OF.view(b_OF.shape[0], -1, num_experts).permute(2, 0, 1)
        whole = {site.name: (a_ESI, b_EOS[:, site.rows]) for site in self.sites}
        if a_ESI.shape[1] % len(self.sites):
            return whole
        shares = zip(a_ESI.chunk(len(self.sites), 1), b_EOS.chunk(len(self.sites), 2), strict=True)
        own = {site.name: (a, b[:, site.rows]) for site, (a, b) in zip(self.sites, shares, strict=True)}
        is_apart = sum(int(b.count_nonzero()) for _, b in own.values()) == int(b_EOS.count_nonzero())
        return own if is_apart else whole


def expert_parameters(sites: Sequence[LoraSite]) -> list[ExpertParameter]:
    """The stacked parameters of which sites are rows, in the order of the sites."""
    stacked = [site for site in sites if site.num_experts is not None]
    found = []
    for _, of_module in groupby(stacked, lambda site: site.parameter.rpartition(".")[0]):
        parameters = [list(group) for _, group in groupby(of_module, lambda site: site.parameter)]
        found += [ExpertParameter(group, len(parameters) - 1 - i) for i, group in enumerate(parameters)]
    return found
