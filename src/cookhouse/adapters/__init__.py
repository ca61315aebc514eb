"""Ports that a run needs, and the bundle of adapters that fill them."""

from cookhouse.adapters.bundle import Adapters, Ask, OpenCompleter
from cookhouse.adapters.named import (
    ADAPTERS,
    AdaptersBuilder,
    GivenAdapters,
    check_adapters,
    given_adapters,
    make_adapters,
)
from cookhouse.adapters.ports import PORTS, Port, check_ports
from cookhouse.adapters.service import EmbeddedEngine, Service, ServiceAddress, is_hosted

__all__ = [
    "ADAPTERS",
    "PORTS",
    "Adapters",
    "AdaptersBuilder",
    "Ask",
    "EmbeddedEngine",
    "GivenAdapters",
    "OpenCompleter",
    "Port",
    "Service",
    "ServiceAddress",
    "check_adapters",
    "check_ports",
    "given_adapters",
    "is_hosted",
    "make_adapters",
]
