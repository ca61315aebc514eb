"""Figures of what a server has in memory, as JSON. On the event loop: each is quick, and lists are bounded."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.engine.contract import Sample
from cookhouse.server.sequencer.queues import QueueLength
from cookhouse.server.service import Service
from cookhouse.server.sessions.sessions import Model, Session
from cookhouse.server.status.stored import MAX_ROWS
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.status.worker_watch import Seen
from cookhouse.server.storage.store.rows import SessionRow

Json = dict[str, Any]
_TOKEN_KINDS = ("trained", "scored", "prompt", "sampled")
_MAX_NAME_CHARACTERS = 200
_MAX_REASON_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Held:
    """A model and its queue."""

    model: Model
    length: QueueLength
    worker: str | None
    """The one that has it; None: it waits for a place."""
    waits_for: str | None
    """What it lacks to be loaded again."""


@dataclass(frozen=True, slots=True)
class Live:
    """Figures of one moment."""

    sessions: Sequence[Session]
    models: Sequence[Held]
    silent_seconds: Mapping[str, float]
    """By session."""

    @classmethod
    def of(cls, service: Service) -> "Live":
        sessions = list(service.sessions)
        models = [model for session in sessions for model in session.models.values()]
        places = {
            name: worker.name for worker in service.pool.workers for name in service.pool.placement.models_of(worker)
        }
        return cls(
            sessions,
            [
                Held(
                    model,
                    service.sequencer.length(model),
                    places.get(model.model_id),
                    service.sequencer.retries.reason(model.model_id),
                )
                for model in models
            ],
            {session.session_id: service.sessions.silent_seconds(session) for session in sessions},
        )


def base_models(service: Service, live: Live) -> list[Json]:
    """Base models that the server offers, by the names that clients use."""
    held = Counter(one.model.base_model for one in live.models)
    samplers = Counter(one.base_model for session in live.sessions for one in session.samplers.values())
    found = []
    for name in service.requests.base_models.names:
        info = service.requests.base_models.named(name)
        found.append(
            {
                "name": name,
                "architecture": info.architecture,
                "max_context_tokens": info.max_context_tokens,
                "max_lora_rank": info.max_lora_rank,
                "num_models": held[name],
                "num_samplers": samplers[name],
            }
        )
    return found


def sessions(live: Live, viewer: Viewer, stored: Mapping[str, SessionRow]) -> Json:
    """Sessions, the one with the latest request first; `stored` has their rows, by id."""

    def row(session: Session) -> Json:
        kept = stored.get(session.session_id)
        name, sdk_version = (None, None) if kept is None else (kept.display_name, kept.sdk_version)
        return {
            "session_id": session.session_id,
            "tenant": viewer.label(session.owner),
            "name": None if name is None else name[:_MAX_NAME_CHARACTERS],
            "sdk_version": None if sdk_version is None else sdk_version[:_MAX_NAME_CHARACTERS],
            "silent_seconds": live.silent_seconds[session.session_id],
            "num_models": len(session.models),
            "num_samplers": len(session.samplers),
        }

    seen = [session for session in live.sessions if viewer.sees(session.owner)]
    return bounded(seen, row, key=lambda session: session.heard_at)


def models(live: Live, viewer: Viewer) -> Json:
    """Models, those with the most to do first."""

    def row(held: Held) -> Json:
        model, length = held.model, held.length
        return {
            "model_id": model.model_id,
            "session_id": model.session_id,
            "tenant": viewer.label(model.owner),
            "base_model": model.base_model,
            "lora_rank": model.lora.rank or None,
            "worker": held.worker,
            "num_accepting": length.num_accepting,
            "num_waiting": length.num_waiting,
            "num_running": length.num_running,
            "oldest_seconds": _age(length.oldest_at),
            "last_checkpoint": model.last_checkpoint,
            "waits_for": None if held.waits_for is None else held.waits_for[:_MAX_REASON_CHARACTERS],
            "loss": None if model.loss is None else model.loss[:_MAX_REASON_CHARACTERS],
        }

    seen = [held for held in live.models if viewer.sees(held.model.owner)]
    return bounded(seen, row, key=lambda held: held.length.num_waiting + held.length.num_running)


def samples(service: Service, viewer: Viewer, seen: Sequence[Seen]) -> list[Json]:
    """Requests that wait or run, by tenant and base model; sequences are those of all workers that have reported."""
    now = time.monotonic()
    names = {service.requests.base_models.named(name).name: name for name in service.requests.base_models.names}
    running: Counter[tuple[str, str]] = Counter()
    waiting: Counter[tuple[str, str]] = Counter()
    statuses = [one.status for one in seen if one.status is not None]
    for cache in (cache for status in statuses for cache in status.memory.caches):
        running.update({(owner, cache.base_model): number for owner, number in cache.running.items()})
        waiting.update({(owner, cache.base_model): number for owner, number in cache.waiting.items()})
    return [
        {
            "tenant": viewer.label(owner),
            "base_model": names.get(base_model, base_model),
            "num_requests": number,
            "oldest_seconds": now - oldest_at,
            "num_running_sequences": running[owner, base_model] if statuses else None,
            "num_waiting_sequences": waiting[owner, base_model] if statuses else None,
        }
        for (owner, base_model), (number, oldest_at) in service.sequencer.samples.lengths().items()
        if viewer.sees(owner)
    ]


def waiting(service: Service, live: Live) -> Json:
    """Requests that no worker has yet, of all tenants."""
    commands = (one.command for worker in service.pool.workers for one in worker.commands.values())
    num_with_workers = sum(isinstance(command, Sample) for command in commands)
    return {
        "num_training_requests": sum(one.length.num_accepting + one.length.num_waiting for one in live.models),
        "num_samples": max(0, len(service.sequencer.samples) - num_with_workers),
        "num_models": sum(one.worker is None and one.model.loss is None for one in live.models),
    }


def tenants(
    service: Service, live: Live, viewer: Viewer, checkpoints: Mapping[str, tuple[int, int]] | None
) -> tuple[list[Json], Json]:
    """Of each tenant that the viewer may see, and of all together."""
    rates, held = service.meter.recent.rates(), service.sequencer.held.by_owner
    num_sessions = Counter(session.owner for session in live.sessions)
    num_models, waiting, running = Counter[str](), Counter[str](), Counter[str]()
    for one in live.models:
        num_models[one.model.owner] += 1
        waiting[one.model.owner] += one.length.num_waiting
        running[one.model.owner] += one.length.num_running
    num_samples: Counter[str] = Counter()
    for (owner, _), (number, _) in service.sequencer.samples.lengths().items():
        num_samples[owner] += number

    def row(owners: Iterable[str]) -> Json:
        owners = list(owners)
        return {
            "num_sessions": sum(num_sessions[owner] for owner in owners),
            "num_models": sum(num_models[owner] for owner in owners),
            "num_waiting": sum(waiting[owner] for owner in owners),
            "num_running": sum(running[owner] for owner in owners),
            "num_samples": sum(num_samples[owner] for owner in owners),
            "held_bytes": sum(held.get(owner, 0) for owner in owners),
            "tokens_per_second": {
                kind: sum(rates.get(owner, {}).get(f"{kind}_tokens", 0.0) for owner in owners) for kind in _TOKEN_KINDS
            },
            "engine_share": sum(rates.get(owner, {}).get("engine_seconds", 0.0) for owner in owners),
            "num_checkpoints": _sum(checkpoints, owners, 0),
            "checkpoint_bytes": _sum(checkpoints, owners, 1),
        }

    everyone = dict.fromkeys([*service.keys.owners, *num_sessions, *rates, *(checkpoints or {})])
    seen = [owner for owner in everyone if viewer.sees(owner)][:MAX_ROWS]
    listed = [{"tenant": viewer.label(owner), "is_viewer": owner == viewer.owner, **row([owner])} for owner in seen]
    return listed, row(everyone)


def bounded(
    values: Sequence[Any], row: Callable[[Any], Json], key: Callable[[Any], float], most: int = MAX_ROWS
) -> Json:
    """Rows of the values with the largest keys, and how many others there are."""
    shown = heapq.nlargest(most, values, key=key)
    return {"listed": [row(value) for value in shown], "num_left_out": len(values) - len(shown)}


def _sum(figures: Mapping[str, tuple[int, int]] | None, owners: Sequence[str], index: int) -> int | None:
    return None if figures is None else sum(figures.get(owner, (0, 0))[index] for owner in owners)


def _age(at: float | None) -> float | None:
    return None if at is None else max(0.0, time.time() - at)
