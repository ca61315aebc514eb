"""The training loop, and what it is made of."""

from cookhouse.training.client import Connect, SamplingClient, Service, TrainingClient

__all__ = ["Connect", "SamplingClient", "Service", "TrainingClient"]
