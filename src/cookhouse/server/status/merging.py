"""Merging of a status with those of other servers: what each of them holds of sessions, models, samples and tenants."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cookhouse.server.status.figures import Json
from cookhouse.server.status.stored import MAX_ROWS
from cookhouse.version import __version__

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
