"""The status of a server, as JSON, for one who asks."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from cookhouse.server.access.middleware import Latencies
from cookhouse.server.service import Service
from cookhouse.server.status import figures, machinery, workers
from cookhouse.server.status.cached import Cached
from cookhouse.server.status.figures import Json
from cookhouse.server.status.merging import merge, same_version
from cookhouse.server.status.stored import Listed, read_listed, read_machine, read_servers, read_totals
from cookhouse.server.status.troubles import troubles
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.status.worker_watch import WorkerWatches

_DISK_SECONDS, _STORE_SECONDS, _ROUTES_SECONDS = 5.0, 10.0, 5.0
_SERVERS_SECONDS = 1.0
"""How old figures may be."""
_AGAIN_SECONDS = 0.5
"""How long an answer is given again to the same tenant: what many pages ask costs as much as one does."""

Parts = Callable[[], Awaitable[Mapping[str, Any]]]
"""Asks the other servers for their own statuses, for the same tenant; by their ids."""


async def _no_parts() -> Mapping[str, Any]:
    return {}


class ServerStatus:
    """Lives on the event loop."""

    def __init__(self, service: Service, latencies: Latencies, watches: WorkerWatches) -> None:
        self._service = service
        self._watches = watches
        self._machine = Cached(partial(read_machine, service.storage.folder), seconds=_DISK_SECONDS)
        self._totals = Cached(partial(read_totals, service), seconds=_STORE_SECONDS)
        self._servers = Cached(partial(read_servers, service), seconds=_SERVERS_SECONDS)
        self._times = Cached(latencies.times, seconds=_ROUTES_SECONDS)
        self._listed: dict[str, Cached[Listed]] = {}
        self._answers: dict[tuple[str, bool], tuple[float, bytes]] = {}

    async def of(self, owner: str, parts: Parts = _no_parts) -> bytes:
        """Status that a tenant may see, with the `parts` of other servers. `owner` is one of the server's own, so that
        the memory for answers is bounded.
        """
        which = owner, parts is _no_parts
        made_at, answer = self._answers.get(which, (float("-inf"), b""))
        if time.monotonic() - made_at >= _AGAIN_SECONDS:
            content = await self._make(Viewer(owner, self._service.keys), parts)
            answer = json.dumps(content, allow_nan=False).encode()
            self._answers[which] = time.monotonic(), answer
        return answer

    async def _make(self, viewer: Viewer, ask: Parts) -> Json:
        service = self._service
        if viewer.owner not in self._listed:
            self._listed[viewer.owner] = Cached(partial(read_listed, service, viewer), seconds=_STORE_SECONDS)
        asking = asyncio.ensure_future(ask())
        listed, machine, totals, times, servers, seen = await asyncio.gather(
            self._listed[viewer.owner].get(),
            self._machine.get(),
            self._totals.get(),
            self._times.get(),
            self._servers.get(),
            self._watches.look(),
        )
        parts = same_version(await asking)
        live = figures.Live.of(service)
        tenants, everyone = figures.tenants(service, live, viewer, totals.value)
        names = {} if listed.value is None else listed.value.session_names
        status = {
            "viewer": {"tenant": viewer.label(viewer.owner), "is_operator": viewer.is_operator},
            "server": machinery.server(service, viewer, machine.value),
            "servers": machinery.servers(service, viewer, servers.value, parts.keys()),
            "workers": [workers.worker(service, viewer, live, one) for one in seen],
            "waiting": figures.waiting(service, live),
            "base_models": figures.base_models(service, live),
            "totals": everyone,
            "tenants": tenants,
            "sessions": figures.sessions(live, viewer, names),
            "models": figures.models(live, viewer),
            "samples": figures.samples(service, viewer, seen),
            "requests": machinery.requests(times),
            "journal": machinery.journal(service, live, machine.value),
            "disk": machinery.disk(service, viewer, machine),
            "checkpoints": machinery.checkpoints(listed, viewer),
        }
        for part in parts.values():
            merge(status, part)
        return {"troubles": troubles(status), **status}
