"""Continuous batching over a block cache: deciding (scheduler) apart from computing (sampler)."""

from cookhouse.engine.sampler.sampler import Sampler
from cookhouse.engine.sampler.samplers import Samplers

__all__ = ["Sampler", "Samplers"]
