"""What waits and runs on a model: its requests, their order, and what has run."""

import asyncio
from dataclasses import dataclass, field

from cookhouse.server.sequencer.futures import Future
from cookhouse.server.sequencer.history import History
from cookhouse.server.sequencer.order import ModelOrder
from cookhouse.server.sequencer.plans import Run
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.storage.journal import Entry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """A request on a model."""

    run: Run
    future: Future | None = None
    """Who waits for it; None: nobody does any more."""
    entry: Entry | None = None
    """In the journal; None: it is not there, and does not run again."""
    num_bytes: int = 0
    """Of its arrays."""
    is_creation: bool = False
    changes_model: bool = True
    """Whether later requests depend on it."""
    runs_again: bool = False
    """Whether it may have run before, in an engine that was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLength:
    """How many requests a model has that have no result."""

    num_accepting: int = 0
    """Those that are being written to the journal."""
    num_waiting: int = 0
    num_running: int = 0
    """Those that have had their turn, and are with the engine."""
    oldest_at: float | None = None
    """When the first of them was accepted, in seconds since the epoch; None where nobody waits for it."""
    num_kept: int = 0
    """Requests that no state covers yet, so that the journal keeps them."""
    kept_bytes: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Queue:
    """What is asked of a model, in order."""

    model: Model
    order: ModelOrder[Job]
    history: History = field(default_factory=History)
    unfinished: dict[Job, None] = field(default_factory=dict)
    """Those that wait, and those that have had their turn; as they came."""
    running: set[Job] = field(default_factory=set)
    """Those that have had their turn."""
    num_admitted: int = 0
    """Those that are being written to the journal."""
    is_taken: bool = False
    """Whether a request has its turn now."""
    timer: asyncio.TimerHandle | None = None

    def length(self) -> QueueLength:
        """How many it has waiting and running."""
        oldest = next(iter(self.unfinished), None)
        return QueueLength(
            num_accepting=self.num_admitted,
            num_waiting=len(self.order),
            num_running=len(self.running),
            oldest_at=None if oldest is None or oldest.future is None else oldest.future.begun_at,
            num_kept=len(self.history.ran),
            kept_bytes=self.history.num_bytes,
        )

    def is_over(self, job: Job) -> bool:
        """Whether a request that was to run again has come to its end meanwhile: it was under way when its worker was
        lost, and the journal may have forgotten it.
        """
        if job.entry is None:
            return False
        has_result = job.future is None or job.future.result is not None
        return job.entry.request_id in self.history.finished or (
            job.runs_again and not job.changes_model and has_result
        )
