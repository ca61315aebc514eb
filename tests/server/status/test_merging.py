"""Catches a status that counts another server's twice, or not at all, or fails where that one is of another version."""

from typing import Any

import pytest

from cookhouse.server.status.status import merge, same_version
from cookhouse.version import __version__


def counts(number: int) -> dict[str, Any]:
    """Of a tenant, or of all."""
    own = dict.fromkeys(("num_sessions", "num_models", "num_waiting", "num_running", "num_samples"), number)
    rates = {"tokens_per_second": {"trained": 0.5 * number}, "engine_share": 0.25, "held_bytes": 10 * number}
    return {**own, **rates, "num_checkpoints": 7, "checkpoint_bytes": 700}


def status(number: int, tenant: str, *, sequences: int | None = None) -> dict[str, Any]:
    """Of a server with one session of a tenant, silent for so many seconds, whose model has so many that wait."""
    return {
        "sessions": {"listed": [{"session_id": f"s{number}", "silent_seconds": float(number)}], "num_left_out": 1},
        "models": {"listed": [{"model_id": f"m{number}", "num_waiting": number, "num_running": 0}], "num_left_out": 0},
        "samples": [
            {
                "tenant": tenant,
                "base_model": "b",
                "num_requests": number,
                "oldest_seconds": float(number),
                "num_running_sequences": sequences,
                "num_waiting_sequences": None,
            }
        ],
        "base_models": [{"name": "b", "num_models": number, "num_samplers": 0}],
        "tenants": [{"tenant": tenant, **counts(number)}],
        "totals": counts(number),
    }


def test_what_both_hold_is_listed_and_added_up() -> None:
    ours = status(1, "me")
    merge(ours, status(2, "me", sequences=3))
    assert [row["session_id"] for row in ours["sessions"]["listed"]] == ["s1", "s2"]
    assert ours["sessions"]["num_left_out"] == 2
    assert [row["model_id"] for row in ours["models"]["listed"]] == ["m2", "m1"]
    (sample,) = ours["samples"]
    assert (sample["num_requests"], sample["oldest_seconds"]) == (3, 2.0)
    assert (sample["num_running_sequences"], sample["num_waiting_sequences"]) == (3, None)
    assert ours["base_models"] == [{"name": "b", "num_models": 3, "num_samplers": 0}]
    both = {**counts(3), "engine_share": 0.5}
    assert ours["tenants"] == [{"tenant": "me", **both}]
    assert ours["totals"] == both


def test_lists_keep_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.server.status.status.MAX_ROWS", 1)
    ours = status(1, "me")
    merge(ours, status(2, "another"))
    assert [row["session_id"] for row in ours["sessions"]["listed"]] == ["s1"]
    assert ours["sessions"]["num_left_out"] == 3
    assert [row["tenant"] for row in ours["tenants"]] == ["me"]


def test_only_what_this_version_knows_is_merged() -> None:
    good = {"server": {"version": __version__}}
    parts = {"a": good, "b": {"server": {"version": "0.0"}}, "c": {}, "d": ["no status"], "e": {"server": None}}
    assert same_version(parts) == {"a": good}
