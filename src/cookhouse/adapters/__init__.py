"""What a run needs from the world around it: ports, and the bundle of adapters that fill them."""

from cookhouse.adapters.bundle import Adapters, Ask
from cookhouse.adapters.named import ADAPTERS, AdaptersBuilder, make_adapters

__all__ = ["ADAPTERS", "Adapters", "AdaptersBuilder", "Ask", "make_adapters"]
