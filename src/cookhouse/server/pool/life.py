"""The lives of a server's workers, for whoever operates it."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that ended, or could not be started."""

    at: float
    """Seconds since the epoch."""
    reason: str


@dataclass(slots=True)
class WorkerLife:
    """Of the present worker, and what became of those before it."""

    description: str | None = None
    """What it computes on; None: none has been up yet."""
    node: str | None = None
    """Of Ray's, that it is on; None: none has been up yet, or it is on the server's machine by itself."""
    up_since: float | None = None
    """Seconds since the epoch; None: none is up."""
    num_losses: int = 0
    last_loss: Loss | None = None
    failed_start: Loss | None = None
    """Of the last attempt to start another; None: it has not been tried, or one is up."""

    def begin(self, description: str, node: str = "") -> None:
        self.description, self.node = description, node or None
        self.up_since, self.failed_start = time.time(), None

    def lose(self, reason: str) -> None:
        self.up_since = None
        self.num_losses += 1
        self.last_loss = Loss(time.time(), reason)

    def fail(self, reason: str) -> None:
        """Another could not be started."""
        self.failed_start = Loss(time.time(), reason)

    def end(self) -> None:
        """It was closed."""
        self.up_since = None
