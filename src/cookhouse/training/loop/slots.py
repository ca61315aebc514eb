"""Slots of the training loop, and what it reports."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from cookhouse.telemetry import Values
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.loop.cadence import Cadence
from cookhouse.training.loop.objective import Answered, Objective
from cookhouse.training.loop.optimizer import AdamSchedule
from cookhouse.training.loop.saving import PendingCheckpoint
from cookhouse.training.loop.source import Source
from cookhouse.training.work import Work
from cookhouse.weights.checkpoints import Checkpoint, Cursor

P = TypeVar("P")

Keep: TypeAlias = Callable[[int, Answered[Any]], None]
"""Keeps something of a step, counted from 0, and of its answers, for whoever looks at the run."""


class Evaluation(Protocol):
    """Measures the weights at one point of the run."""

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        """Request all that must see the present weights; no step is submitted meanwhile. The coroutine returned here
        then runs along with the steps that follow, and returns metrics.
        """


@dataclass(frozen=True, kw_only=True)
class ScheduledEvaluation:
    """An evaluation, and before which steps it is due."""

    name: str
    evaluation: Evaluation
    cadence: Cadence


@dataclass(frozen=True, kw_only=True)
class FinishedStep:
    """A step whose answers are all here."""

    cursor: Cursor
    metrics: Mapping[str, Any]
    """Of the work and the optimizer (each a mean over the step's pieces or updates that report it), of the objective,
    and of the evaluations of the weights before the step that were due."""
    seconds: float
    """Since the last answer to the step before it (for the first: since it was submitted) up to its own last answer,
    without the time in which nothing but an evaluation kept it from being submitted."""
    held_seconds: float = 0.0
    """That time."""


@dataclass(frozen=True, kw_only=True)
class LoopSlots(Generic[P]):
    """Slots that fill the loop. The service sees the requests of the slots in the order they stand here. P is what
    the source's work carries besides datums, for the objective.
    """

    evaluate: Sequence[ScheduledEvaluation]
    get_work: Source[P]
    forward_backward: Objective[P]
    optim_step: AdamSchedule
    checkpoint: Callable[[TrainingClient, Cursor], PendingCheckpoint]
    log: Callable[[FinishedStep], None]
    keep: Keep | None = None
    """Called once a step is logged; it waits for nothing."""
    look_back: Callable[[TrainingClient, Sequence[Work[P]]], Awaitable[Mapping[str, float]]] | None = None
    """Asks the weights after a step about the work of that step; the metrics are the step's."""
    publish: Callable[[TrainingClient, int], None] | None = None
    """Requests a sampler with the weights after so many steps, before the first step and after each but the last."""


@dataclass(frozen=True, kw_only=True)
class SlotNames:
    """Names of the slots in spans and in messages on a stalled run."""

    evaluate: str = "evaluate"
    get_work: str = "get_batch"
    forward_backward: str = "forward_backward"
    optim_step: str = "optim_step"
    look_back: str = "look_back"
    checkpoint: str = "checkpoint"
    log: str = "log_step_metrics"
    keep: str = "keep_examples"


@dataclass(frozen=True, kw_only=True)
class LoopOutcome:
    """End of the loop, and the place where it would continue."""

    cursor: Cursor
    is_interrupted: bool
    is_paused: bool
    """Whether it took the steps that it was to take, saved them and measured them, and there are more."""
    metrics: Mapping[str, Any]
    """Of the last step; empty if none was taken."""
    checkpoint: Checkpoint | None
    """The last one saved by this loop."""
