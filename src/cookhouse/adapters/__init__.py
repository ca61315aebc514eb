"""What a run needs from the world around it: ports, and the bundle of adapters that fill them."""

from cookhouse.adapters.bundle import Adapters, Ask

__all__ = ["Adapters", "Ask"]
