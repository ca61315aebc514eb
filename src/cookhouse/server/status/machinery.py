"""Figures of the server's own parts, as JSON: journal, disk, requests, settings."""

import os
import platform
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict

from cookhouse.server.access.middleware import WINDOW_SECONDS, RouteTimes
from cookhouse.server.leases.members import Member
from cookhouse.server.service import Service
from cookhouse.server.settings import Settings
from cookhouse.server.status.cached import Reading
from cookhouse.server.status.figures import Json, Live
from cookhouse.server.status.stored import Listed, Machine
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.storage.journal import FILES, OFF
from cookhouse.version import __version__

_SETTINGS = (
    "as_hosted",
    "deterministic",
    "drain_seconds",
    "session_seconds",
    "silent_seconds",
    "result_seconds",
    "max_queued_requests",
    "max_queued_samples",
    "max_samplers",
    "max_queued_bytes",
    "max_held_bytes",
    "max_snapshot_bytes",
    "max_snapshot_file_bytes",
    "max_pass_tokens",
)


def server(service: Service, viewer: Viewer, machine: Machine | None) -> Json:
    """Facts about the server's process: version, uptime, pause, draining and memory."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "process_id": os.getpid() if viewer.is_operator else None,
        "up_seconds": time.time() - service.started_at,
        "pause": service.pause(),
        "draining": {
            "is_draining": service.draining.is_begun,
            "num_entered": service.draining.num_entered,
            "num_results_kept": len(service.sequencer.futures),
        },
        "memory_bytes": None if machine is None else machine.resident_bytes,
        "machine_memory_available_bytes": None if machine is None else machine.available_bytes,
        "unserved": _unserved(service),
        "held_bytes": sum(service.sequencer.held.by_owner.values()),
        "max_held_bytes": service.sequencer.held.max_bytes,
        "settings": settings(service.settings),
    }


def _unserved(service: Service) -> Json | None:
    """Sessions that no server can take over; None: there are none."""
    unserved = {} if service.leases is None else service.leases.unserved
    names = {name for names in unserved.values() for name in names}
    return {"num_sessions": len(unserved), "base_models": sorted(names)} if unserved else None


def servers(
    service: Service, viewer: Viewer, members: Sequence[Member] | None, counted: Collection[str]
) -> list[Json] | None:
    """Servers that share the sessions; None: this is the only one. `counted`: ids of others that have said what they
    hold.
    """
    if service.leases is None or members is None:
        return None
    return [
        {
            "url": member.url if viewer.is_operator else None,
            "is_this": member.server_id == service.leases.server_id,
            "is_counted": member.server_id in {service.leases.server_id, *counted},
            "is_draining": member.is_leaving,
            "silent_seconds": member.silent_seconds,
            "num_sessions": member.num_sessions,
        }
        for member in members
    ]


def settings(used: Settings) -> Json:
    """Settings that matter to someone who asks why something waits. Of a URL only the scheme: it may hold more."""
    journal = used.journal if used.journal in (OFF, FILES, "rows") else used.journal.partition("://")[0] + "://"
    return {"journal": journal, **{name: getattr(used, name) for name in _SETTINGS}}


def journal(service: Service, live: Live, machine: Machine | None) -> Json | None:
    """None: there is no journal."""
    if service.storage.journal is None:
        return None
    state = service.storage.journal.commit.state
    now = time.time()
    return {
        "last_commit_seconds_ago": None if state.last_at is None else now - state.last_at,
        "failing_seconds": None if state.failing_since is None else now - state.failing_since,
        "failure": state.failure,
        "num_waiting": state.num_waiting,
        "waiting_bytes": state.waiting_bytes,
        "num_kept_requests": sum(held.length.num_kept for held in live.models),
        "kept_bytes": sum(held.length.kept_bytes for held in live.models),
        "folder_bytes": None if machine is None else dict(machine.journal_bytes),
    }


def disk(service: Service, viewer: Viewer, machine: Reading[Machine]) -> Json:
    value = machine.value
    return {
        "folder": str(service.storage.folder.absolute()) if viewer.is_operator else None,
        "bytes": None if value is None else value.disk_bytes,
        "free_bytes": None if value is None else value.disk_free_bytes,
        "database_bytes": None if value is None else value.database_bytes,
        "age_seconds": machine.age_seconds,
        "problem": machine.problem if viewer.is_operator else None,
    }


def requests(times: Reading[list[RouteTimes]]) -> Json:
    """By route, of all tenants."""
    return {
        "window_seconds": WINDOW_SECONDS,
        "routes": None if times.value is None else [asdict(one) for one in times.value],
    }


def checkpoints(listed: Reading[Listed], viewer: Viewer) -> Json:
    """The newest; how many there are stands with the tenants."""
    rows = None
    if listed.value is not None:
        rows = [
            {
                "path": row.path,
                "tenant": viewer.label(row.owner),
                "base_model": row.base_model,
                "kind": row.kind,
                "bytes": row.size_bytes,
                "seconds_ago": time.time() - row.created_at,
                "is_public": row.is_public,
            }
            for row in listed.value.checkpoints
        ]
    return {"listed": rows, "age_seconds": listed.age_seconds, "problem": listed.problem}
