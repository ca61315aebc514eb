"""Figures of a server's workers, as JSON."""

import time

from cookhouse.engine.contract import CacheUse, Inspect, WorkerStatus
from cookhouse.server.pool.life import WorkerLost
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.service import Service
from cookhouse.server.status.figures import Json, Live
from cookhouse.server.status.stored import MAX_ROWS
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.status.worker_watch import Seen


def worker(service: Service, viewer: Viewer, live: Live, seen: Seen) -> Json:
    """Of one. What it has not said is null."""
    worker, life = seen.worker, seen.worker.life
    return {
        "name": worker.name,
        "trains": worker.plan.trains,
        "samples": worker.plan.samples,
        "state": _state(worker),
        "is_up": worker.is_up,
        "is_draining": worker.is_draining,
        "up_seconds": None if life.up_since is None else time.time() - life.up_since,
        "computes_on": life.description,
        "node": life.node,
        "num_losses": life.num_losses,
        "last_loss": None if life.last_loss is None else _loss(life.last_loss, viewer),
        "failed_start": None if life.failed_start is None else _loss(life.failed_start, viewer),
        "num_models": len(service.pool.placement.models_of(worker)),
        "model_ids": _model_ids(worker, live, viewer),
        "num_snapshots": len(worker.memory.snapshots),
        "num_commands": num_commands(worker),
        "num_tokens": worker.num_tokens,
        "status_age_seconds": seen.age_seconds,
        "silent_seconds": seen.silent_seconds,
        "utilization": seen.utilization,
        **_told(service, viewer, seen.status),
    }


def num_commands(worker: WorkerHandle) -> int:
    """Number of commands that are with a worker, without our own question."""
    return sum(not isinstance(one.command, Inspect) for one in worker.commands.values())


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


def _state(worker: WorkerHandle) -> str:
    if worker.is_draining:
        return "draining"
    if worker.is_up:
        return "up"
    return "restarting" if worker.life.num_losses else "starting"


def _loss(loss: WorkerLost, viewer: Viewer) -> Json:
    return {"seconds_ago": time.time() - loss.at, "reason": loss.reason if viewer.is_operator else None}


def _model_ids(worker: WorkerHandle, live: Live, viewer: Viewer) -> list[str]:
    held = [one.model for one in live.models if one.worker == worker.name]
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
