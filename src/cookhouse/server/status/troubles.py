"""What is wrong, in sentences: what an operator reads first."""

from collections.abc import Iterator
from typing import Any

_OLD_SECONDS = 60.0
_SILENT_SECONDS = 5.0
_RECENT_SECONDS = 600.0
_LEAST_SHARE, _LEAST_BYTES = 0.02, 2**30
_FULL_SHARE = 0.9
_FAILED_SHARE = 0.01


def troubles(status: dict[str, Any]) -> list[str]:
    """Of a status without them."""
    return [*_engine(status), *_storage(status), *_queues(status)]


def _engine(status: dict[str, Any]) -> Iterator[str]:
    server, engine = status["server"], status["engine"]
    if server["pause"] is not None:
        yield f"Requests are not taken: {server['pause']}."
    loss = engine["last_loss"]
    if loss is not None and (not engine["is_up"] or loss["seconds_ago"] < _RECENT_SECONDS):
        reason = "" if loss["reason"] is None else f": {loss['reason']}"
        yield f"The engine was lost {_seconds(loss['seconds_ago'])} ago{reason}. The log has more (server.log)."
    if (silent := engine["silent_seconds"]) is not None and silent > _SILENT_SECONDS:
        yield f"The engine's process has said nothing for {_seconds(silent)}: it may be stopped, or swapped out."
    for cache in engine["caches"] or ():
        if cache["num_waiting_sequences"] and cache["used_bytes"] > _FULL_SHARE * cache["max_bytes"]:
            number, name = cache["num_waiting_sequences"], cache["base_model"]
            yield f"The key-value cache of {name} is full, and {number} sequences wait; see --max-cache-bytes."


def _storage(status: dict[str, Any]) -> Iterator[str]:
    journal, disk = status["journal"], status["disk"]
    if journal is not None and journal["failure"] is not None:
        yield f"Nothing has been written for {_seconds(journal['failing_seconds'])}: {journal['failure']}"
    for part in (disk, status["checkpoints"]):
        if part["problem"] is not None:
            yield f"The state folder or its database cannot be read: {part['problem']}"
    free = disk["free_bytes"]
    if free is not None and free < max(_LEAST_BYTES, _LEAST_SHARE * disk["bytes"]):
        yield f"The disk has {free / 2**30:.2f} GiB left: delete checkpoints, or make room otherwise."


def _queues(status: dict[str, Any]) -> Iterator[str]:
    server = status["server"]
    if server["held_bytes"] > _FULL_SHARE * server["max_held_bytes"]:
        yield "Requests hold nearly all the memory that they may: clients are told to wait (429)."
    rows = [*status["models"]["listed"], *status["samples"]]
    oldest = max((row["oldest_seconds"] for row in rows if row["oldest_seconds"] is not None), default=0.0)
    if oldest > _OLD_SECONDS:
        yield f"A request has waited for {_seconds(oldest)}; the queues below have whose."
    for route in status["requests"]["routes"] or ():
        if route["num_failed"] > _FAILED_SHARE * route["number"]:
            yield f"{route['num_failed']} of {route['number']} requests to {route['route']} failed (5xx): see the log."


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
