"""What a worker does with its engine: whose turn it is, what it holds, and what it tells. Knows no torch."""

from cookhouse.engine.worker.loop import Loop, Runner

__all__ = ["Loop", "Runner"]
