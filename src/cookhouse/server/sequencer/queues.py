"""Queues of models: requests that wait and run, and the history that a worker which lost the model runs again."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from cookhouse.engine.contract import Amount, Create, Load, ModelCommand, Output
from cookhouse.errors import InputError
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import LostError
from cookhouse.server.sequencer.futures import Future, Result
from cookhouse.server.sequencer.order import ModelOrder, SeenIds
from cookhouse.server.sequencer.retries import Retries
from cookhouse.server.sessions.sessions import Model, SamplerWeights
from cookhouse.server.storage.journal import Entry, State

LOAD = "load_weights"
"""The kind of request that loads files."""


@dataclass(slots=True, kw_only=True)
class Ran:
    """A request that has had its turn."""

    entry: Entry
    changes_model: bool
    taken_to: int
    """One more than the largest `seq_id` that had had its turn by then."""
    num_losses: int = 0
    """Workers that were lost while it was the first of its model without a result."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A state that is on the disk, and what it covers, all of which has its result."""

    state: State
    covered: Collection[str]


@dataclass(slots=True)
class History:
    """Requests that have run on a model since its last state: a worker that lost the model runs them again."""

    state: State | None = None
    ran: dict[str, Ran] = field(default_factory=dict)
    """By request, in the order of their turns."""
    published: dict[str, SamplerWeights] = field(default_factory=dict)
    """Weights of samplers, by id, of which no state has taken note that they have files."""
    finished: set[str] = field(default_factory=set)
    """Requests that need not run again, whose entries say that they came."""
    num_bytes: int = 0
    """Of the requests in `ran`."""
    busy_seconds: float = 0.0
    """How long the worker took for them."""
    busy_to: float = 0.0
    """Until when the worker was last busy with them."""
    is_saving: bool = False
    """Whether a state is being written."""
    coming: Coming | None = None
    """While a state is being committed, which takes as long as the store is locked or full."""
    num_moves: int = 0
    """How often the model was taken from a worker, which was lost or has left."""
    next_index: int = 0
    """The `run_index` of the next request that has one."""
    _indexed: set[str] = field(default_factory=set)

    def add(self, entry: Entry, *, changes_model: bool, taken_to: int) -> None:
        """A request has its turn; one that runs again stays where it was, and as it was."""
        if entry.request_id not in self.ran:
            self.ran[entry.request_id] = Ran(entry=entry, changes_model=changes_model, taken_to=taken_to)
            self.num_bytes += entry.num_bytes
            if entry.run_index is not None:
                self._indexed.add(entry.request_id)
                self.next_index = max(self.next_index, entry.run_index + 1)

    def up_to(self, request_id: str) -> Sequence[str]:
        """Requests that had their turns up to a request, which is included; others of `ran` may have to run again."""
        names = list(self.ran)
        return names[: names.index(request_id) + 1]

    def begin_saving(self) -> None:
        """A state is being written from now on, of all that ran until now."""
        self.is_saving, self.busy_seconds = True, 0.0

    def put_state(self, state: State, covered: Collection[str]) -> None:
        """Have a state that is on the disk in place of the last one, and of the requests that it covers."""
        self.state = state
        self.remove(covered)

    def end_saving(self) -> None:
        """No state is being written any more."""
        self.is_saving, self.coming = False, None

    def move(self) -> None:
        """The model was taken from a worker: weights without a file are published again."""
        self.num_moves += 1
        self.published = {name: snapshot for name, snapshot in self.published.items() if snapshot.has_file}

    def newest(self) -> tuple[State | None, Sequence[Ran]]:
        """The newest state that a worker can start from, and what ran since."""
        if self.coming is None:
            return self.state, list(self.ran.values())
        return self.coming.state, [ran for name, ran in self.ran.items() if name not in self.coming.covered]

    def loads(self) -> Sequence[Ran]:
        """Requests that have files of their own, which they loaded."""
        return [ran for ran in self.ran.values() if ran.entry.kind == LOAD]

    def unindexed(self) -> Sequence[str]:
        """Take the requests whose place is not written down; from now on it counts as written."""
        names = [name for name in self.ran if name not in self._indexed]
        self._indexed.update(names)
        return names

    def finish(self, request_id: str) -> None:
        """Note that a request need not run again."""
        self.remove([request_id])
        self.finished.add(request_id)

    def remove(self, request_ids: Collection[str]) -> None:
        """Forget requests that will not have to run again."""
        for request_id in request_ids:
            ran = self.ran.pop(request_id, None)
            self._indexed.discard(request_id)
            self.finished.discard(request_id)
            if ran is not None:
                self.num_bytes -= ran.entry.num_bytes

    def count(self, sent_at: float | None, answered_at: float | None) -> None:
        """Add the time that the worker took for a request; requests under way at once do not count twice."""
        if sent_at is None or answered_at is None:
            return
        self.busy_seconds += max(0.0, answered_at - max(sent_at, self.busy_to))
        self.busy_to = max(self.busy_to, answered_at)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """At one request, whose turn it is: from `send` on, the next request of the model has its own."""

    pool: Pool
    model: Model
    retries: Retries | None
    """Of a model that must come back; None: what cannot be made now fails."""
    is_current: Callable[[], bool]
    """Whether the worker at which the attempt is made has not been lost since."""
    on_sent: Callable[[ModelCommand], None]
    """Ends the turn; may send more before."""
    sent_at: float | None = None
    answered_at: float | None = None
    """When the worker was done with it; on the clock of `time.monotonic`."""
    spent: list[Amount] = field(default_factory=list)
    """What the worker used for it."""

    async def send(self, command: ModelCommand) -> Output:
        """Submit the command, and wait for its answer.

        Raises:
            InputError: the caller is to blame, or the model's session has ended.
            ServiceError: the engine failed, or was lost.
        """
        self._check()
        if self.retries is not None and isinstance(command, Create | Load):
            # The next one of the model has its turn once there is a model: it may take long.
            output = await self.retries.send(command, self._check, self.spent)
            self.sent_at = self.answered_at = time.monotonic()
            self.on_sent(command)
            return output
        self.sent_at = time.monotonic()
        answer = self.pool.send(command, spent=self.spent)
        self.on_sent(command)
        output = await answer
        self.answered_at = time.monotonic()
        return output

    def _check(self) -> None:
        """Raise why the attempt is over, if it is."""
        if self.model.is_dropped:
            raise InputError(f"session {self.model.session_id} has ended")
        if not self.is_current():
            raise LostError("the engine was lost")
        if self.model.loss is not None:
            raise LostError(self.model.loss)


Run = Callable[[Attempt], Awaitable[Result]]
"""Does what a request asks for, at each attempt. It may be run again, in another process, and does the same then."""


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
    """Number of a model's requests that have no result."""

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
    """Requests of a model, in order, and what has run of them."""

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

    @property
    def is_unused(self) -> bool:
        """True if nothing waits or runs on a model that there is not, or not any more."""
        is_needed = self.num_admitted or self.unfinished
        return not is_needed and (self.model.is_dropped or not self.model.creation)

    def put_again(self, job: Job) -> None:
        """Queue a request that has run, or a load of the last state, before all others."""
        self.unfinished[job] = None
        self.order.put_again(job, None if job.entry is None else job.entry.seq_id)

    def restore(self, history: History, seen: SeenIds, jobs: Sequence[Job], *, gap_seconds: float) -> None:
        """Take over what the journal has of a model, in order; predecessors are waited for `gap_seconds` in any case.

        What is known to have run in another order than that of ids has its `run_index`, and comes first.
        """
        now = time.monotonic()
        self.history, self.order.seen = history, seen
        self.order.patient_to = now + gap_seconds
        entries = [job.entry for job in jobs if job.entry is not None]
        ran_to = [1 + (entry.seq_id or 0) for entry in entries if entry.run_index is not None]
        taken_to, last_id = max([seen.taken_to, *ran_to]), max([entry.seq_id or 0 for entry in entries], default=0)
        for job in jobs:
            if job.entry is None or job.is_creation or job.entry.run_index is not None:
                self.put_again(job)
                continue
            self.unfinished[job] = None
            seq_id = job.entry.seq_id
            if seq_id is None or seq_id < taken_to:  # had it run, its `run_index` would say where
                self.order.put_late(job, seq_id, last_id + 1, now)
            else:
                self.order.put(job, seq_id, now)

    def begin(self, job: Job) -> None:
        """Give a request its turn, which has been taken from the order."""
        self.is_taken = True
        self.running.add(job)
        if job.entry is not None:
            self.history.add(job.entry, changes_model=job.changes_model, taken_to=self.order.seen.taken_to)

    def length(self) -> QueueLength:
        """Numbers of its requests that wait and run."""
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
        """True if a request that was to run again has come to its end meanwhile: it was under way when its worker was
        lost, and the journal may have forgotten it.
        """
        if job.entry is None:
            return False
        has_result = job.future is None or job.future.result is not None
        return job.entry.request_id in self.history.finished or (
            job.runs_again and not job.changes_model and has_result
        )
