"""Trains adapters over frozen base models, and samples from them. Knows nothing of the wire."""

from typing import TYPE_CHECKING

from cookhouse.engine.engine import Engine

if TYPE_CHECKING:
    from cookhouse.engine.torch_engine import TorchEngine

__all__ = ["Engine", "TorchEngine"]


def __getattr__(name: str) -> object:
    """`TorchEngine` on first use: the contract, which a server needs at once, is had without torch."""
    if name == "TorchEngine":
        from cookhouse.engine.torch_engine import TorchEngine

        return TorchEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
