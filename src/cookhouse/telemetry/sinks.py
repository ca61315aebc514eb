"""Sinks of the user's own, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.naming import OpenSet
from cookhouse.telemetry.record import Sink

SinkBuilder: TypeAlias = Callable[[Path, Mapping[str, Any]], Sink]
"""Makes a sink for a run, from its folder and its settings by name. One that raises refuses the run."""

SINKS: OpenSet[SinkBuilder] = OpenSet(
    kind="sink",
    group="cookhouse.sinks",
    builtin={},
    check=lambda thing: thing if callable(thing) else None,
    wants="a sink is named by a function of the run folder and the settings that makes one",
)
