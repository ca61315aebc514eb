"""Accepting requests of models: each is written to the journal, and gets a future and a place in the queue.

    plan ── known? ──► the id of the first copy
         └─ room? ──► journal ── on the disk ──► future, queue ──► request id

A duplicate that comes while the first copy is being written waits for it.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.server.sequencer.futures import Futures
from cookhouse.server.sequencer.plans import Drawn, Plan
from cookhouse.server.sequencer.queues import Job
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.storage.journal import AddEntry, DropEntry, Entry, GroupCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A request as it came."""

    kind: str
    """The name of its route."""
    body: bytes | bytearray
    encoding: str = ""
    """Of the body."""


class Intake:
    """Lives on the event loop."""

    def __init__(self, futures: Futures, sequencer: Sequencer, commit: GroupCommit | None = None) -> None:
        """`commit` None: there is no journal."""
        self._futures = futures
        self._sequencer = sequencer
        self._commit = commit
        self._next_position = 0
        self._accepting: dict[str, asyncio.Task[None]] = {}
        self._heard_at: dict[str, float] = {}

    def number_from(self, position: int) -> None:
        """Give the next request at least this place in the order of acceptance."""
        self._next_position = max(self._next_position, position)

    async def accept(self, plan: Plan, arrived: Arrived, drawn: Drawn) -> str:
        """Take a request, and return the id to answer with. It goes on where its client has gone.

        Raises:
            BusyError: the queue is full.
            StorageError: the journal cannot be written; the request was not accepted.
        """
        self._heard_at[plan.model.model_id] = time.time()
        accepting = self._accepting.get(plan.request_id)
        if accepting is None:
            if self._is_known(plan):
                return plan.request_id
            self._sequencer.admit(plan.model, plan.num_bytes)
            accepting = asyncio.ensure_future(self._accept(plan, arrived, drawn))
            self._accepting[plan.request_id] = accepting
            accepting.add_done_callback(lambda _: self._accepting.pop(plan.request_id))
        await asyncio.shield(accepting)
        return plan.request_id

    def _is_known(self, plan: Plan) -> bool:
        if plan.is_creation:
            return bool(plan.model.creation)
        has_answer = self._futures.peek(plan.request_id) is not None  # `seen` lacks some that ran before a restart
        return has_answer or (plan.seq_id is not None and self._sequencer.has_seen(plan.model, plan.seq_id))

    async def _accept(self, plan: Plan, arrived: Arrived, drawn: Drawn) -> None:
        model, entry = plan.model, None
        try:
            if self._commit is not None:
                entry = self._entry(plan, arrived, drawn)
                await self._commit.commit(AddEntry(entry, bytes(arrived.body)), *plan.rows)
            plan.on_accepted()
            if model.is_dropped:
                if self._commit is not None and entry is not None:
                    self._commit.later(DropEntry(entry.request_id, entry.position))
                raise InputError(f"session {model.session_id} has ended")
        except BaseException:
            self._sequencer.release(model, plan.num_bytes)
            raise
        future = self._futures.create(plan.request_id, owner=model.owner, session_id=model.session_id)
        job = Job(
            future=future,
            run=plan.run,
            entry=entry,
            num_bytes=plan.num_bytes,
            is_creation=plan.is_creation,
            changes_model=plan.changes_model,
        )
        self._sequencer.submit(model, plan.seq_id, job)

    def _entry(self, plan: Plan, arrived: Arrived, drawn: Drawn) -> Entry:
        model, position = plan.model, self._next_position
        self._next_position += 1
        return Entry(
            request_id=plan.request_id,
            model_id=model.model_id,
            session_id=model.session_id,
            owner=model.owner,
            seq_id=plan.seq_id,
            kind=arrived.kind,
            position=position,
            drawn={**drawn, "changes_model": plan.changes_model},
            num_bytes=plan.num_bytes,
            encoding=arrived.encoding,
            accepted_at=time.time(),
        )

    def heard_at(self, model_id: str) -> float | None:
        """When a model was last heard of, if that is not in the store yet."""
        return self._heard_at.get(model_id)

    def taken_times(self) -> Mapping[str, float]:
        """When each model was last heard of, since the previous call."""
        taken, self._heard_at = self._heard_at, {}
        return taken
