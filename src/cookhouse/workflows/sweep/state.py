"""The state of a sweep."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.runs import RunFolder, RunResult, SweepRecord
from cookhouse.runs.halving import Halving
from cookhouse.settings import SweepSettings
from cookhouse.workflows.stages.state import RunState


@dataclass(kw_only=True)
class SweepState(RunState):
    """What the stages of a sweep hand to one another."""

    config: SweepSettings
    document: str
    folder: RunFolder = field(init=False)
    path: Path = field(init=False)
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the runs that came to an end or were interrupted, by name."""
    errors: dict[str, str] = field(default_factory=dict)
    """What ended the others that have begun, by name."""
    record: SweepRecord = field(init=False)
    halving: Halving | None = None
    """Its decisions, of a sweep by successive halving."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while these are written."""
    is_whole: bool = False
    """Whether every run came to its end, or was stopped by a decision."""
    registered_model: str | None = None
    """What the best run was registered as."""
