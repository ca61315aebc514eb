"""Life of a worker: since when it is up, how often it was lost, and what goes with one that is."""

import time
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker that ended, or could not be started."""

    at: float
    """Seconds since the epoch."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostState:
    """Models and published weights that were in the memory of one worker, which ended or is drained, or from which they
    are moved.
    """

    reason: str
    model_ids: Collection[str]
    snapshot_ids: Collection[str]
    is_loss: bool = True
    """Whether the worker ended by itself, perhaps for what it was asked to do."""
    worker: str = "the engine"
    """In words."""

    def message(self, num_requests: int | None) -> str:
        """A line for the log; `num_requests` run again, None: nothing can."""
        said = f"{self.worker} was lost: {self.reason}; another is started"
        models = f"{len(self.model_ids)} model{'s' * (len(self.model_ids) != 1)}"
        if num_requests is None:
            return f"{said}, and what {models} had learned is lost: the server keeps no journal"
        requests = f"{num_requests:,} request{'s' * (num_requests != 1)}"
        return f"{said}, and work goes on: {requests} of {models} run again, and what had no answer yet"


@dataclass(slots=True)
class WorkerLife:
    """Of the present worker, and of those before it."""

    description: str | None = None
    """What it computes on; None: none has been up yet."""
    node: str | None = None
    """Of Ray's, that it is on; None: none has been up yet, or it is on the server's machine by itself."""
    up_since: float | None = None
    """Seconds since the epoch; None: none is up."""
    num_losses: int = 0
    last_loss: WorkerLost | None = None
    failed_start: WorkerLost | None = None
    """Of the last attempt to start another; None: it has not been tried, or one is up."""

    def begin(self, description: str, node: str = "") -> None:
        self.description, self.node = description, node or None
        self.up_since, self.failed_start = time.time(), None

    def lose(self, reason: str) -> None:
        self.up_since = None
        self.num_losses += 1
        self.last_loss = WorkerLost(time.time(), reason)

    def fail(self, reason: str) -> None:
        """Another could not be started."""
        self.failed_start = WorkerLost(time.time(), reason)

    def end(self) -> None:
        """It was closed."""
        self.up_since = None
