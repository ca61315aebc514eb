"""Intake of requests that change models: each is read, planned, written to the journal, and queued.

route ── content ──► draw ──► plan ── known? ──► the id of the first copy
                               └─ room? ──► journal ── on the disk ──► future, queue ──► request id
journal ── body ──► content ──► plan ──► run again, as it was drawn

A duplicate that comes while the first copy is being written waits for it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinker import types

from cookhouse.errors import InputError
from cookhouse.server.access.bodies import body_of
from cookhouse.server.refusals import GoneError, NotFoundError, StorageBusyError
from cookhouse.server.requests.plans import Drawn, RequestPlan, draw
from cookhouse.server.requests.saving import SaveRequests
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.sequencer.attempts import Attempt
from cookhouse.server.sequencer.futures import Future, Futures, Result
from cookhouse.server.sequencer.queues import LOAD, Job
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import AddEntry, DropEntry, Entry, Journal

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0

Read = Callable[[str, bytes | bytearray], Awaitable[Any]]
"""The content of a tenant's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A request as it came."""

    kind: str
    """The name of its route."""
    body: bytes | bytearray
    encoding: str = ""
    """Of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    read: Read
    plan: Callable[[str, Any, Drawn], RequestPlan]
    find: Callable[[str, Any], Awaitable[Mapping[str, Any]]] | None = None
    """Values to draw besides those drawn for every request."""


class Intake:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        futures: Futures,
        journal: Journal | None,
        saving: SaveRequests,
        sequencer: Sequencer,
        sessions: Sessions,
        settings: Settings,
        training: TrainingRequests,
    ) -> None:
        self._futures = futures
        self._journal = journal
        self._sequencer = sequencer
        self._sessions = sessions
        self._max_decoded_bytes = settings.max_decoded_bytes
        self._kinds: Mapping[str, _Kind] = {
            "create_model": _Kind(
                read=_json(types.CreateModelRequest), plan=training.create_model, find=training.needed
            ),
            LOAD: _Kind(read=_json(types.LoadWeightsRequest), plan=training.load_weights, find=training.found),
            "forward_backward": _Kind(read=training.read_pass, plan=training.forward_backward, find=training.refusal),
            "optim_step": _Kind(read=_json(types.OptimStepRequest), plan=training.optim_step),
            "save_weights": _Kind(read=_json(types.SaveWeightsRequest), plan=saving.save_state),
            "save_weights_for_sampler": _Kind(
                read=_json(types.SaveWeightsForSamplerRequest), plan=saving.save_for_sampler
            ),
            "save_weights_external": _Kind(read=_json(types.SaveWeightsExternalRequest), plan=saving.save_external),
        }
        self._next_position = 0
        self._accepting: dict[str, asyncio.Task[None]] = {}
        """By request."""
        self._heard_at: dict[str, float] = {}
        """By model."""

    def number_from(self, position: int) -> None:
        """Give the next request at least this place in the order of acceptance."""
        self._next_position = max(self._next_position, position)

    async def accept(self, owner: str, content: Any, arrived: Arrived) -> tuple[str, str]:
        """Take a request; returns its id, and its model's. It goes on where its client has gone.

        Raises:
            InputError: it is refused.
            BusyError: the queue is full.
            StorageError: the journal cannot be written; the request was not accepted.
        """
        kind, drawn = self._kinds[arrived.kind], draw()
        if kind.find is not None:
            drawn.update(await kind.find(owner, content))
        plan = kind.plan(owner, content, drawn)
        request_id, model_id = plan.request_id, plan.model.model_id
        self._heard_at[model_id] = time.time()
        accepting = self._accepting.get(request_id)
        if accepting is None:
            if self._is_known(plan):
                return request_id, model_id
            self._sequencer.admit(plan.model, plan.num_bytes)
            accepting = asyncio.ensure_future(self._accept(plan, arrived, drawn))
            self._accepting[request_id] = accepting
            accepting.add_done_callback(lambda _: self._accepting.pop(request_id))
        await asyncio.shield(accepting)
        return request_id, model_id

    def _is_known(self, plan: RequestPlan) -> bool:
        if plan.is_creation:
            return bool(plan.model.creation)
        has_answer = self._futures.peek(plan.request_id) is not None  # `seen` lacks some that ran before a restart
        return has_answer or (plan.seq_id is not None and self._sequencer.has_seen(plan.model, plan.seq_id))

    async def _accept(self, plan: RequestPlan, arrived: Arrived, drawn: Drawn) -> None:
        model, entry = plan.model, None
        try:
            if self._journal is not None:
                entry = Entry(
                    request_id=plan.request_id,
                    model_id=model.model_id,
                    session_id=model.session_id,
                    owner=model.owner,
                    seq_id=plan.seq_id,
                    kind=arrived.kind,
                    position=self._next_position,
                    drawn={**drawn, "changes_model": plan.changes_model},
                    num_bytes=plan.num_bytes,
                    encoding=arrived.encoding,
                    accepted_at=time.time(),
                )
                self._next_position += 1
                await self._journal.commit.commit(AddEntry(entry, bytes(arrived.body)), *plan.rows)
            if plan.on_accepted is not None:
                plan.on_accepted()
            if model.is_dropped:
                if self._journal is not None and entry is not None:
                    self._journal.commit.later(DropEntry(entry.request_id, entry.position))
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

    def future(self, request_id: str, owner: str) -> Future:
        """The future that a tenant asks for. Raises as `Futures.get`, or StorageBusyError: it may come back with its
        session.
        """
        try:
            return self._futures.get(request_id, owner)
        except (GoneError, NotFoundError):
            self._sessions.check_owner(owner)
            raise

    async def plan(self, entry: Entry) -> RequestPlan:
        """The plan for a request of the journal: the same as when it was accepted."""
        kind = self._kinds[entry.kind]
        body = await asyncio.to_thread(self._body, entry)
        content = await kind.read(entry.owner, body)
        with self._sessions.unheard():
            return kind.plan(entry.owner, content, entry.drawn)

    async def run(self, entry: Entry, attempt: Attempt) -> Result:
        """Do again what a request of the journal asks for. Waits for a journal that cannot be read now."""
        while True:
            try:
                plan = await self.plan(entry)
                break
            except StorageBusyError as error:
                _log.error("a request cannot be read again: %s; trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)
        return await plan.run(attempt)

    def _body(self, entry: Entry) -> bytes | bytearray:
        assert self._journal is not None
        body = self._journal.reader.body(entry.request_id)
        return body_of(bytearray(body), entry.encoding, self._max_decoded_bytes).read()

    def heard_at(self, model_id: str) -> float | None:
        """Time of a model's last request, if that is not in the store yet."""
        return self._heard_at.get(model_id)

    def taken_times(self) -> Mapping[str, float]:
        """Take the times of each model's last request since the previous call."""
        taken, self._heard_at = self._heard_at, {}
        return taken


def _json(kind: Any) -> Read:
    async def read(_owner: str, body: bytes | bytearray) -> Any:
        return kind.model_validate_json(bytes(body))

    return read
