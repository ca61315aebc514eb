"""What a worker does with its engine: whose turn it is, what it holds, and what it tells. Knows no torch."""

from cookhouse.engine.worker.loop import Loop
from cookhouse.engine.worker.runner import Runner

__all__ = ["Loop", "Runner"]
