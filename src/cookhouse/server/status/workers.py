"""Figures of a server's workers, as JSON."""

import time

from cookhouse.engine.contract import CacheUse, Inspect, WorkerStatus
from cookhouse.server.pool.life import Loss
from cookhouse.server.pool.member import Member
from cookhouse.server.service import Service
from cookhouse.server.status.figures import Json, Live
from cookhouse.server.status.stored import MAX_ROWS
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.status.worker_watch import Seen


def worker(service: Service, viewer: Viewer, live: Live, seen: Seen) -> Json:
    """Of one. What it has not said is null."""
    member, life = seen.member, seen.member.life
    return {
        "name": member.name,
        "trains": member.plan.trains,
        "samples": member.plan.samples,
        "state": _state(member),
        "is_up": member.is_up,
        "is_draining": member.is_leaving,
        "up_seconds": None if life.up_since is None else time.time() - life.up_since,
        "computes_on": life.description,
        "node": life.node,
        "num_losses": life.num_losses,
        "last_loss": None if life.last_loss is None else _loss(life.last_loss, viewer),
        "failed_start": None if life.failed_start is None else _loss(life.failed_start, viewer),
        "num_models": len(service.calls.models_of(member)),
        "model_ids": _model_ids(member, live, viewer),
        "num_snapshots": len(member.snapshots),
        "num_commands": num_commands(member),
        "num_tokens": member.num_tokens,
        "status_age_seconds": seen.age_seconds,
        "silent_seconds": seen.silent_seconds,
        "utilization": seen.utilization,
        **_told(service, viewer, seen.status),
    }


def num_commands(member: Member) -> int:
    """Those that are with a worker; our own question is none of them."""
    return sum(not isinstance(call.command, Inspect) for call in member.calls.values())


def cache_use(service: Service, cache: CacheUse) -> Json:
    names = {service.requests.base_models.named(name).name: name for name in service.requests.base_models.names}
    return {
        "base_model": names.get(cache.base_model, cache.base_model),
        "used_bytes": cache.num_used_blocks * cache.block_bytes,
        "bytes": cache.num_blocks * cache.block_bytes,
        "max_bytes": cache.max_blocks * cache.block_bytes,
        "num_running_sequences": sum(cache.running.values()),
        "num_waiting_sequences": sum(cache.waiting.values()),
    }


def _state(member: Member) -> str:
    if member.is_leaving:
        return "draining"
    if member.is_up:
        return "up"
    return "restarting" if member.life.num_losses else "starting"


def _loss(loss: Loss, viewer: Viewer) -> Json:
    return {"seconds_ago": time.time() - loss.at, "reason": loss.reason if viewer.is_operator else None}


def _model_ids(member: Member, live: Live, viewer: Viewer) -> list[str]:
    held = [one.model for one in live.models if one.worker == member.name]
    return [model.model_id for model in held if viewer.sees(model.owner)][:MAX_ROWS]


def _told(service: Service, viewer: Viewer, status: WorkerStatus | None) -> Json:
    if status is None:
        return dict.fromkeys(("turn", "turns", "memory_bytes", "device_memory", "caches"))
    return {
        "turn": _turn(status, viewer),
        "turns": [turn._asdict() for turn in status.turns],
        "memory_bytes": status.resident_bytes,
        "device_memory": _device(status),
        "caches": [cache_use(service, cache) for cache in status.memory.caches],
    }


def _turn(status: WorkerStatus, viewer: Viewer) -> Json | None:
    if status.turn is None:
        return None
    running = [
        {
            "command": one.kind,
            "tenant": viewer.label(one.account.owner),
            "model_id": one.model_id if one.model_id and viewer.sees(one.account.owner) else None,
        }
        for one in status.running
    ]
    return {
        "kind": status.turn,
        "seconds": status.turn_seconds,
        "running": running,
        "num_running": status.num_running,
    }


def _device(status: WorkerStatus) -> Json | None:
    memory = status.memory
    if memory.device_bytes is None:
        return None
    return {
        "used_bytes": memory.device_bytes,
        "peak_bytes": memory.device_peak_bytes,
        "total_bytes": memory.device_total_bytes,
    }
