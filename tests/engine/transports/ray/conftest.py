"""Clusters of the session."""

from tests.engine.transports.ray.fixtures import ray_cluster, ray_is_here, ray_transports

__all__ = ["ray_cluster", "ray_is_here", "ray_transports"]
