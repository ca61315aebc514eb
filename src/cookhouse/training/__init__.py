"""The training loop, and what it is made of."""

from cookhouse.training.client import Connect, SamplingClient, Service, TrainingClient, connect_to

__all__ = ["Connect", "SamplingClient", "Service", "TrainingClient", "connect_to"]
