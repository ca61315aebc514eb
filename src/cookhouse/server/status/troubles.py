"""Troubles, in sentences: what an operator reads first."""

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
    workers = status["workers"]
    return [
        *_pause(status),
        *_unserved(status),
        *_servers(status),
        *(trouble for worker in workers for trouble in _worker(worker, is_alone=len(workers) == 1)),
        *_waiting(status),
        *_storage(status),
        *_queues(status),
    ]


def _pause(status: dict[str, Any]) -> Iterator[str]:
    if (pause := status["server"]["pause"]) is not None:
        yield f"The server accepts no requests: {pause}."


def _unserved(status: dict[str, Any]) -> Iterator[str]:
    if (unserved := status["server"]["unserved"]) is not None:
        number, names = unserved["num_sessions"], ", ".join(unserved["base_models"])
        yield f"{number} sessions wait for a server that offers {names}: no single one of those that run does."


def _servers(status: dict[str, Any]) -> Iterator[str]:
    for row in status["servers"] or ():
        if not row["is_counted"]:
            which = "Another server" if row["url"] is None else f"The server at {row['url']}"
            yield f"{which} does not say what it holds: its sessions, models and queues are missing here."


def _worker(worker: dict[str, Any], *, is_alone: bool) -> Iterator[str]:
    name = "The engine" if is_alone else worker["name"]
    loss = worker["last_loss"]
    if loss is not None and (not worker["is_up"] or loss["seconds_ago"] < _RECENT_SECONDS):
        yield f"{name} was lost {_since(loss)}. The log has more (server.log)."
    if (failure := worker["failed_start"]) is not None:
        yield f"{name} failed to restart {_since(failure)}; retrying."
    if (silent := worker["silent_seconds"]) is not None and silent > _SILENT_SECONDS:
        yield f"{name} has not responded for {_seconds(silent)}: its process may be stopped, or swapped out."
    for cache in worker["caches"] or ():
        if cache["num_waiting_sequences"] and cache["used_bytes"] > _FULL_SHARE * cache["max_bytes"]:
            number, which = cache["num_waiting_sequences"], cache["base_model"]
            of = "" if is_alone else f" at {worker['name']}"
            yield f"The key-value cache of {which}{of} is full, and {number} sequences wait; see --max-cache-bytes."


def _waiting(status: dict[str, Any]) -> Iterator[str]:
    reasons = [row["waits_for"] for row in status["models"]["listed"] if row["waits_for"] is not None]
    if reasons:
        number = "1 model waits" if len(reasons) == 1 else f"{len(reasons)} models wait"
        yield f"{number} to be loaded again, and nothing is lost: {reasons[0]}. See cookhouse cluster add."


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
    rows = [row for row in (*status["models"]["listed"], *status["samples"]) if row["oldest_seconds"] is not None]
    oldest = max(rows, key=lambda row: row["oldest_seconds"], default=None)
    if oldest is not None and oldest["oldest_seconds"] > _OLD_SECONDS:
        what = f"model {oldest['model_id']}" if "model_id" in oldest else f"samples of {oldest['base_model']}"
        yield f"A request for {what} of tenant {oldest['tenant']} has waited for {_seconds(oldest['oldest_seconds'])}."
    for route in status["requests"]["routes"] or ():
        if route["num_failed"] > _FAILED_SHARE * route["number"]:
            yield f"{route['num_failed']} of {route['number']} requests to {route['route']} failed (5xx): see the log."


def _since(loss: dict[str, Any]) -> str:
    """Time of a trouble, with its reason where that may be shown."""
    reason = "" if loss["reason"] is None else f": {loss['reason']}"
    return f"{_seconds(loss['seconds_ago'])} ago{reason}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
