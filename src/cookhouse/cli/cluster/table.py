"""The workers of a server, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.cli.tables import fitted
from cookhouse.runs.history.facts import duration

_HEADER = ("name", "node", "role", "state", "models", "weights", "queue", "busy", "memory", "GPU", "losses", "device")
_SPARE = ("weights", "GPU", "memory", "role")
_DEAR = ("losses", "models", "node")
"""Columns in the order in which they are left out where there is no room."""
_NONE = "-"


def lines_of(status: Mapping[str, Any], width: int | None) -> list[str]:
    """A table of at most `width` cells, what is wrong, in sentences, and what no worker has yet."""
    rows = [_row(worker) for worker in status["workers"]]
    lines, left_out = _table(rows, width)
    if left_out:
        lines.append(f"hidden columns: {', '.join(left_out)}; widen the terminal or use --json")
    return [*lines, *status["troubles"], *_servers(status["servers"]), _waiting(status["waiting"])]


def _servers(servers: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Which one has answered, where several share the sessions: each has workers of its own."""
    if servers is None or len(servers) < 2:
        return []
    index = next((index for index, one in enumerate(servers) if one["is_this"]), None)
    if index is None:  # it has been dropped, and starts again
        return []
    which = f"server {index + 1} of {len(servers)}"
    others = [one["url"] for one in servers if not one["is_this"]]
    if None in others:
        return [f"{which}; the others have workers of their own, at addresses that its first key sees"]
    whose = "its" if len(others) == 1 else "their"
    return [f"{which}: {servers[index]['url']}; ask {' and '.join(others)} for {whose} workers"]


def _waiting(waiting: Mapping[str, int]) -> str:
    parts = (
        _number(waiting["num_training_requests"], "training request"),
        _number(waiting["num_samples"], "sample"),
        f"{_number(waiting['num_models'], 'model')} without a worker",
    )
    return f"waiting at the server: {', '.join(parts)}"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _table(rows: Sequence[Sequence[str]], width: int | None) -> tuple[list[str], list[str]]:
    """Without Ray there are no nodes, and no column of them."""
    has_nodes = any(row[_HEADER.index("node")] != _NONE for row in rows)
    header, *kept = [
        [cell for name, cell in zip(_HEADER, row, strict=True) if has_nodes or name != "node"]
        for row in (_HEADER, *rows)
    ]
    dear = [name for name in _DEAR if name in header]
    return fitted(header, kept, width, cut="device", spare=_SPARE, dear=dear)


def _row(worker: Mapping[str, Any]) -> Sequence[str]:
    device = worker["device_memory"]
    return (
        worker["name"],
        worker["node"] or _NONE,
        ", ".join(word for word in ("trains", "samples") if worker[word]),
        _state(worker),
        f"{worker['num_models']:,}",
        f"{worker['num_snapshots']:,}",
        f"{worker['num_commands']:,} ({worker['num_tokens']:,} tokens)" if worker["num_commands"] else "0",
        _NONE if worker["utilization"] is None else f"{worker['utilization']:.0%}",
        _NONE if worker["memory_bytes"] is None else _size(worker["memory_bytes"]),
        _NONE if device is None else f"{_size(device['used_bytes'])} of {_size(device['total_bytes'])}",
        f"{worker['num_losses']:,}",
        worker["computes_on"] or _NONE,
    )


def _state(worker: Mapping[str, Any]) -> str:
    return f"up {duration(worker['up_seconds'])}" if worker["state"] == "up" else str(worker["state"])


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"
