"""Bundles of adapters that belong together."""

from collections.abc import Mapping
from typing import Any

from cookhouse.adapters.bundle import Adapters
from cookhouse.adapters.ports import check_adapter, check_ports
from cookhouse.adapters.service import EmbeddedEngine, ServiceAddress


def local(**ports: Any) -> Adapters:
    """See `Adapters.local`."""
    return _with(Adapters(service=EmbeddedEngine()), ports)


def hosted(*, api_key: str | None = None, base_url: str | None = None, **ports: Any) -> Adapters:
    """See `Adapters.hosted`."""
    return _with(Adapters(service=ServiceAddress(base_url=base_url, api_key=api_key)), ports)


def noop(*, seed: int = 0, **ports: Any) -> Adapters:
    """See `Adapters.noop`."""
    from cookhouse.blobs import NoopBlobStore
    from cookhouse.data import NoopDatasetStore
    from cookhouse.evals import noop_evaluator
    from cookhouse.models.hub import NoopHub
    from cookhouse.registry import NoopRegistry
    from cookhouse.rl import noop_completer
    from cookhouse.training import NoopService

    service = NoopService(seed)
    made_up = Adapters(
        service=service,
        teacher=service,
        completer=noop_completer(seed),
        hub=NoopHub(),
        blobs=NoopBlobStore(),
        registry=NoopRegistry(),
        datasets=NoopDatasetStore(),
        evaluators={"noop": noop_evaluator(seed)},
    )
    return _with(made_up, ports)


def _with(preset: Adapters, ports: Mapping[str, Any]) -> Adapters:
    own = {name: adapter for name, adapter in ports.items() if name not in ("ask", "program", "name")}
    check_ports(own)
    for port, adapter in own.items():
        check_adapter(port, adapter, "the preset")
    return preset.overridden_by(Adapters(**ports))
