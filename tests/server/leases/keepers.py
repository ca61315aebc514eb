"""Keepers that tell nobody, unless they are to."""

from typing import Any

from cookhouse.server.leases.heartbeats import Keeper


def keeper_of(beats: Any, **functions: Any) -> Keeper:
    told: dict[str, Any] = {
        "on_claimed": lambda _: None,
        "on_change": lambda: None,
        "on_lost": lambda: None,
        "ask": lambda: keeper.answer(),
    }
    keeper: Keeper = Keeper(beats, **told | functions)
    return keeper
