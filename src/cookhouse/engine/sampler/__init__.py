"""Continuous batching over a block cache: deciding (scheduler) apart from computing (sampler)."""

from cookhouse.engine.sampler.sampler import Sampler

__all__ = ["Sampler"]
