"""Trains adapters over frozen base models, and samples from them. Knows nothing of the wire."""

from cookhouse.engine.contract import Engine
from cookhouse.engine.torch_engine import TorchEngine

__all__ = ["Engine", "TorchEngine"]
