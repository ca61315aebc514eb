"""Environments in which another model takes part."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cookhouse.rl import RLDataset, SamplingClient

OpenSampler: TypeAlias = Callable[[str], Awaitable[SamplingClient]]
"""A client that samples from the model of that name."""


class TwoModelConfig(Protocol):
    """A config of environments that may need a second model."""

    async def build(self, open_sampler: OpenSampler | None) -> tuple[RLDataset, RLDataset]:
        """Data sets to train and to evaluate on."""


@dataclass(frozen=True, kw_only=True)
class TwoModelBuilder:
    """A config and the service that the other model is sampled from; fits `cookhouse.rl.RLDatasetBuilder`."""

    config: TwoModelConfig
    open_sampler: OpenSampler

    async def build(self) -> tuple[RLDataset, RLDataset]:
        """As the config's own."""
        return await self.config.build(self.open_sampler)
