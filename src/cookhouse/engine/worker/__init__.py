"""Worker over an engine: its loop, turns, snapshots, saves and status. Knows no torch."""

from cookhouse.engine.worker.loop import Loop, Runner

__all__ = ["Loop", "Runner"]
