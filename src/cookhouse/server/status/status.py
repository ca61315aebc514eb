"""The status of a server, as JSON, for one who asks."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cookhouse.server.access.middleware import Latencies
from cookhouse.server.service import Service
from cookhouse.server.status import figures, machinery, workers
from cookhouse.server.status.cached import Cached
from cookhouse.server.status.figures import Json
from cookhouse.server.status.stored import MAX_ROWS, Listed, read_listed, read_machine, read_servers, read_totals
from cookhouse.server.status.troubles import troubles
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.status.worker_watch import WorkerWatches
from cookhouse.version import __version__

_DISK_SECONDS, _STORE_SECONDS, _ROUTES_SECONDS = 5.0, 10.0, 5.0
_SERVERS_SECONDS = 1.0
"""How old figures may be."""
_AGAIN_SECONDS = 0.5
"""How long an answer is given again to the same tenant: what many pages ask costs as much as one does."""
_SUMS = (
    "num_sessions",
    "num_models",
    "num_waiting",
    "num_running",
    "num_samples",
    "held_bytes",
    "engine_share",
    "tokens_per_second",
)
"""Of a tenant: what a server counts of its own. Checkpoints are counted in the database, of all of them."""

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
        stored = {} if listed.value is None else listed.value.sessions
        status = {
            "viewer": {"tenant": viewer.label(viewer.owner), "is_operator": viewer.is_operator},
            "server": machinery.server(service, viewer, machine.value),
            "servers": machinery.servers(service, viewer, servers.value, parts.keys()),
            "workers": [workers.worker(service, viewer, live, one) for one in seen],
            "waiting": figures.waiting(service, live),
            "base_models": figures.base_models(service, live),
            "totals": everyone,
            "tenants": tenants,
            "sessions": figures.sessions(live, viewer, stored),
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


def same_version(parts: Mapping[str, Any]) -> Mapping[str, Json]:
    """The statuses that have the fields which this version knows."""
    return {server_id: part for server_id, part in parts.items() if _version(part) == __version__}


def _version(part: Any) -> Any:
    server = part.get("server") if isinstance(part, dict) else None
    return server.get("version") if isinstance(server, dict) else None


def merge(status: Json, part: Json) -> None:
    """Add to a status what another server holds, as its own status has it for the same viewer."""
    status["sessions"] = _both(status["sessions"], part["sessions"], lambda row: row["silent_seconds"])
    status["models"] = _both(status["models"], part["models"], lambda row: -row["num_waiting"] - row["num_running"])
    _add_rows(
        status["samples"],
        part["samples"],
        by=("tenant", "base_model"),
        sums=("num_requests", "num_running_sequences", "num_waiting_sequences"),
        largest=("oldest_seconds",),
    )
    of_ours = [row for row in part["base_models"] if row["name"] in {one["name"] for one in status["base_models"]}]
    _add_rows(status["base_models"], of_ours, by=("name",), sums=("num_models", "num_samplers"))
    _add_rows(status["tenants"], part["tenants"], by=("tenant",), sums=_SUMS)
    _add(status["totals"], part["totals"], _SUMS)


def _both(ours: Json, theirs: Json, key: Callable[[Json], float]) -> Json:
    rows = sorted([*ours["listed"], *theirs["listed"]], key=key)
    num_cut = max(0, len(rows) - MAX_ROWS)
    return {
        "listed": rows[:MAX_ROWS],
        "num_left_out": ours["num_left_out"] + theirs["num_left_out"] + num_cut,
    }


def _add_rows(
    ours: list[Json], theirs: list[Json], *, by: Sequence[str], sums: Sequence[str], largest: Sequence[str] = ()
) -> None:
    """Rows of the same thing become one; those of others are appended, as long as there is room."""
    known = {tuple(row[name] for name in by): row for row in ours}
    for row in theirs:
        own = known.get(tuple(row[name] for name in by))
        if own is not None:
            _add(own, row, sums)
            own.update({name: max(own[name], row[name]) for name in largest})
        elif len(ours) < MAX_ROWS:
            ours.append(row)


def _add(row: Json, other: Json, names: Sequence[str]) -> None:
    row.update({name: _sum(row[name], other[name]) for name in names})


def _sum(one: Any, other: Any) -> Any:
    """Of numbers, or of numbers by name; None: it is not known."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, dict):
        return {name: _sum(value, other[name]) for name, value in one.items()}
    return one + other
