"""Work that has been submitted, and what has been answered of it."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import tinker

from cookhouse.telemetry import Values
from cookhouse.training.loop.clock import Submission
from cookhouse.training.loop.saving import PendingCheckpoint
from cookhouse.training.work import Work

P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All that a service said to one piece of work."""

    forward_backward: tinker.ForwardBackwardOutput | None
    optim_step: tinker.OptimStepResponse | None
    looked_back: Mapping[str, float]
    at_seconds: float
    """When the last of them came."""


@dataclass(kw_only=True)
class InFlight(Generic[P]):
    """A piece of work that is submitted, and not finished."""

    work: Work[P]
    learning_rate: float
    submitted: Submission
    forward_backward: Awaitable[tinker.ForwardBackwardOutput] | None
    optim_step: Awaitable[tinker.OptimStepResponse] | None
    look_back: Awaitable[Mapping[str, float]] | None
    evaluations: Sequence[asyncio.Task[Values]]
    checkpoint: PendingCheckpoint | None
    reading: asyncio.Task[Answers] | None = None
    """Begun when its turn comes, or while something else is waited for."""


@dataclass(kw_only=True)
class OpenStep(Generic[P]):
    """Step that is not over, with its answers so far."""

    first: InFlight[P]
    reports: list[Mapping[str, float]] = field(default_factory=list)
    parts: list[tuple[Work[P], tinker.ForwardBackwardOutput]] = field(default_factory=list)
    updates: list[Mapping[str, float]] = field(default_factory=list)
    looked_back: dict[str, float] = field(default_factory=dict)
