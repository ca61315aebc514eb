"""Intake of requests that change models: each is read, planned, written to the journal, and queued.

A plan has the work of a request, and the id that every copy of it has.

route ── content ──► draw ──► plan ── known? ──► the id of the first copy
                               └─ room? ──► journal ── on the disk ──► future, queue ──► request id
journal ── body ──► content ──► plan ──► run again, as it was drawn

A duplicate that comes while the first copy is being written waits for it.
"""

import asyncio
import hashlib
import logging
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cookhouse.engine.contract import Account
from cookhouse.errors import InputError
from cookhouse.server.access.bodies import body_of
from cookhouse.server.access.hosted_rules import Breach, HostedRules
from cookhouse.server.refusals import GoneError, NotFoundError, StorageBusyError
from cookhouse.server.sequencer.futures import TRAIN_PREFIX, Future, Futures, Result
from cookhouse.server.sequencer.queues import Attempt, Job, Run
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Model, Sessions, part_of
from cookhouse.server.storage.journal import AddEntry, Change, DropEntry, Entry, Journal

Drawn = Mapping[str, Any]
"""What the server drew for a request when it accepted it, as JSON: a replay has the same."""
_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


def draw() -> dict[str, Any]:
    """An id, a seed and the time, for any request."""
    return {"id": uuid.uuid4().hex, "seed": secrets.randbits(31), "at": time.time()}


def request_id_of(model_id: str, name: int | str | None) -> str:
    """The id of a model's request, by its `seq_id` or what it is: every copy of it has the same. None: a new one."""
    prefix = TRAIN_PREFIX + part_of(model_id.partition(":")[0])
    if name is None:
        return prefix + secrets.token_hex(12)
    return prefix + hashlib.sha256(f"{model_id} {name}".encode()).hexdigest()[:24]


def creation_id_of(model_id: str) -> str:
    """The id of the request that makes a model."""
    return request_id_of(model_id, "creation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """The work of an accepted request."""

    model: Model
    request_id: str
    seq_id: int | None
    run: Run
    num_bytes: int = 0
    """Of its arrays."""
    is_creation: bool = False
    """Whether it makes the model: before all others."""
    changes_model: bool = True
    """Whether later requests depend on it."""
    rows: Sequence[Change] = ()
    """To be written with it."""
    breaches: Sequence[Breach] = ()
    """Rules of the hosted service that it breaks."""
    on_accepted: Callable[[], None] | None = None
    """Called before it is queued."""


def plan_of(model: Model, seq_id: int | None, run: Run, **options: Any) -> RequestPlan:
    """A plan for a model that there is; for `options` see `RequestPlan`.

    Raises:
        InputError: the `seq_id` cannot be one.
    """
    if seq_id is not None:
        check_seq_id("seq_id", seq_id)
    return RequestPlan(model=model, request_id=request_id_of(model.model_id, seq_id), seq_id=seq_id, run=run, **options)


def refusal_of(model: Model, seq_id: int | None, error: InputError) -> RequestPlan:
    """A request that fails in its turn, and does nothing."""

    async def run(_attempt: Attempt) -> Result:
        raise error

    return plan_of(model, seq_id, run, changes_model=False)


def identity_of(model: Model) -> dict[str, Any]:
    """An id of the command's own, the model's, and whose it is."""
    account = Account(model.owner, model.session_id)
    return {"command_id": uuid.uuid4().hex, "account": account, "model_id": model.model_id}


def check_seq_id(name: str, number: int) -> None:
    """Refuse a number that a database has no room for."""
    if not 0 <= number < 2**63:
        raise InputError(f"{name} is {number}; allowed are 0 to 2^63 - 1")


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
    idempotency_key: str | None = None
    """What its client calls it: one without a `seq_id` is known by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of request that changes a model."""

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
        kinds: Mapping[str, Kind],
        max_decoded_bytes: int,
        rules: HostedRules,
        sequencer: Sequencer,
        sessions: Sessions,
    ) -> None:
        self._futures = futures
        self._journal = journal
        self._sequencer = sequencer
        self._sessions = sessions
        self._kinds = kinds
        self._max_decoded_bytes = max_decoded_bytes
        self._rules = rules
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
        if plan.seq_id is None and not plan.is_creation and arrived.idempotency_key is not None:
            name = f"key {arrived.idempotency_key}"
            plan = replace(plan, request_id=request_id_of(plan.model.model_id, name))
        request_id, model_id = plan.request_id, plan.model.model_id
        self._heard_at[model_id] = time.time()
        accepting = self._accepting.get(request_id)
        if accepting is None:
            if plan.is_creation:
                is_known = bool(plan.model.creation)
            else:
                is_known = self._sequencer.has_seen(plan.model, request_id, plan.seq_id)
            if is_known:
                return request_id, model_id
            self._rules.enforce(plan.model.session_id, plan.breaches)
            self._sequencer.admit(plan.model, plan.num_bytes)
            accepting = asyncio.ensure_future(self._accept(plan, arrived, drawn))
            self._accepting[request_id] = accepting
            accepting.add_done_callback(lambda _: self._accepting.pop(request_id))
        await asyncio.shield(accepting)
        return request_id, model_id

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
