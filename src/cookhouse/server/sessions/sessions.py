"""Live sessions, and the models and samplers in them. Lives on the event loop.

A session ends when its client says so, or when there was no contact for `session_seconds`; its models and snapshots
are freed then. A restart brings it back from the journal; without one, nothing of it survives but the checkpoints.
"""

import asyncio
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import ServiceError
from cookhouse.server.access.bodies import Lease
from cookhouse.server.refusals import ForeignError, NoSessionError, NotFoundError, StorageBusyError

_SHARED = "shared-"
_REQUEST = re.compile(r"(?:train|sample)-(shared-[0-9a-f-]{36})-[0-9a-f]+")
_LATE_SECONDS = 5.0
"""A look that comes so much later than it was to has found the process stopped, or starved."""


def new_shared_id() -> str:
    return f"{_SHARED}{uuid.uuid4()}"


def part_of(session_id: str) -> str:
    """Part of a request's id that names its session; empty unless servers share it."""
    return f"{session_id}-" if session_id.startswith(_SHARED) else ""


def session_of_request(request_id: str) -> str | None:
    """None: its id does not say."""
    found = _REQUEST.fullmatch(request_id)
    return None if found is None else found[1]


@dataclass(slots=True, kw_only=True)
class Model:
    """A training run that the engine holds."""

    model_id: str
    session_id: str
    owner: str
    base_model: str
    """As its client calls it."""
    lora: LoraSpec
    creation: str = ""
    """Request id of the future that makes it."""
    seq_id: int
    """Its number in its session."""
    last_checkpoint: str | None = None
    """The newest of its training states that can be loaded: saved by it, or the one that it came from."""
    loss: str | None = None
    """Why it is not in the engine any more, in words for its client."""
    is_dropped: bool = False
    """Whether its session has ended."""
    snapshots: "dict[str, SamplerWeights]" = field(default_factory=dict)
    """Weights that it published, or will have, by id, and that no file has yet."""

    def lose(self, reason: str) -> None:
        """Note that the worker which held it is gone."""
        way_out = "make a new training client"
        if self.last_checkpoint is not None:
            way_out += f" from its last checkpoint, {self.last_checkpoint}"
        self.loss = f"the engine was lost, and model {self.model_id} with it ({reason}); {way_out}"


def _now() -> "asyncio.Future[None]":
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


@dataclass(slots=True, kw_only=True)
class SamplerWeights:
    """Weights that one sampler reads, by the id that the engine knows them by."""

    snapshot_id: str
    owner: str
    base_model: str
    """As the engine calls it."""
    lora: LoraSpec | None = None
    """Of published weights."""
    is_published: bool = False
    """Whether a model published them; else they are a checkpoint's."""
    sampler_id: str = ""
    """Whose they are, if they were published."""
    is_freed: bool = False
    """Whether nobody samples from them any more."""
    has_file: bool = False
    """Whether published weights lie in a file, from which they can be had again."""
    sha256: Mapping[str, str] | None = None
    """Of these files, by name."""
    ready: "asyncio.Future[None]" = field(default_factory=_now)
    """Done once the engine has them, or `error` is set."""
    error: Exception | None = None
    """Why they cannot be sampled from."""

    def lose(self, reason: str) -> None:
        """Note that the worker which held them is gone."""
        if self.is_published:
            self.error = ServiceError(
                f"the engine was lost, and the weights of this sampling client with it ({reason}); publish them again, "
                "or sample from a checkpoint"
            )


@dataclass(slots=True, kw_only=True)
class Sampler:
    sampler_id: str
    session_id: str
    owner: str
    base_model: str
    model_path: str | None = None
    seq_id: int
    """Its number in its session."""
    snapshot: SamplerWeights | None = None
    """None: the bare base model, or weights of `model_path` that nobody has asked for since a restart."""
    creation: str = ""
    """Id of the request that published its weights."""
    requests: dict[int, str] = field(default_factory=dict)
    """Request id by `seq_id`, as long as the future is kept."""
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever one of its samples is done."""

    def report_progress(self) -> None:
        self.progress.set()
        self.progress = asyncio.Event()


@dataclass(slots=True, kw_only=True)
class Session:
    session_id: str
    owner: str
    idempotency_key: str | None
    heard_at: float
    outlasting: frozenset[object] | None = None
    """Requests that were with the engine when its silence became too long, and still are; None: it is not too long."""
    worked_at: float = float("-inf")
    """When some of these still were."""
    writing: "asyncio.Task[None] | None" = None
    """Writes it down; whoever answers with it waits for that."""
    models: dict[int, Model] = field(default_factory=dict)
    samplers: dict[int, Sampler] = field(default_factory=dict)

    def snapshots(self) -> Sequence[SamplerWeights]:
        """Weights that its samplers read."""
        return [sampler.snapshot for sampler in self.samplers.values() if sampler.snapshot is not None]


class Sessions:
    """The live sessions. Every look-up asks whose they are; what belongs to another tenant does not exist."""

    def __init__(self, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._new_id = new_id
        self._sessions: dict[str, Session] = {}
        self._models: dict[str, Model] = {}
        self._samplers: dict[str, Sampler] = {}
        self._by_idempotency_key: dict[tuple[str, str], Session] = {}
        self._is_unheard = False
        self.awake_since = float("-inf")
        """When the server woke up last."""
        self._look_due_at: float | None = None
        self._num_polls: Counter[str] = Counter()
        """Of those that are open, by session."""
        self._arriving: dict[int, Lease] = {}
        """Bodies on their way: whose session each is of stands in it."""
        self._owners_aside: dict[str, str] = {}
        """Of sessions that are to be brought back, which has failed so far, by id."""

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def has(self, session_id: str) -> bool:
        """True if a session is alive, whosever it is."""
        return session_id in self._sessions

    def set_aside(self, session_id: str, owner: str) -> None:
        """A session that is not here is to be brought back."""
        self._owners_aside[session_id] = owner

    def end_aside(self, session_id: str) -> None:
        """It is here, or comes no more."""
        del self._owners_aside[session_id]

    def check_aside(self, session_id: str) -> None:
        """Raises StorageBusyError: a session is set aside, until it can be brought back."""
        if session_id in self._owners_aside:
            raise StorageBusyError(
                f"session {session_id} cannot be brought back now, which is tried again; the server's log says why"
            )

    def check_owner(self, owner: str) -> None:
        """The same of any session of a tenant's."""
        for session_id, other in list(self._owners_aside.items()):
            if other == owner:
                self.check_aside(session_id)

    def begin(self, owner: str, idempotency_key: str | None) -> tuple[Session, bool]:
        """The session of this key, and whether it is new."""
        if idempotency_key is not None and (owner, idempotency_key) in self._by_idempotency_key:
            return self._by_idempotency_key[owner, idempotency_key], False
        return self.add(self._new_id(), owner, idempotency_key), True

    def add(self, session_id: str, owner: str, idempotency_key: str | None) -> Session:
        """A session of this id, whose last contact is now."""
        session = Session(
            session_id=session_id, owner=owner, idempotency_key=idempotency_key, heard_at=time.monotonic()
        )
        self._sessions[session_id] = session
        if idempotency_key is not None:
            self._by_idempotency_key[owner, idempotency_key] = session
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.session_id, None)
        if session.idempotency_key is not None:
            self._by_idempotency_key.pop((session.owner, session.idempotency_key), None)
        for model in session.models.values():
            self._models.pop(model.model_id, None)
        for sampler in session.samplers.values():
            self._samplers.pop(sampler.sampler_id, None)

    def add_model(self, model: Model) -> None:
        """Make a model known; it is dropped where its session has ended meanwhile."""
        session = self._sessions.get(model.session_id)
        if session is None:
            model.is_dropped = True
            return
        session.models[model.seq_id] = model
        self._models[model.model_id] = model

    def add_sampler(self, sampler: Sampler) -> None:
        """Make a sampler known, unless its session has ended meanwhile."""
        if sampler.session_id in self._sessions:
            self._sessions[sampler.session_id].samplers[sampler.seq_id] = sampler
            self._samplers[sampler.sampler_id] = sampler

    def peek_sampler(self, session_id: str, seq_id: int) -> Sampler | None:
        """The sampler to which a session has given this number."""
        session = self._sessions.get(session_id)
        return None if session is None else session.samplers.get(seq_id)

    def hear(self, session_id: str) -> None:
        """Note a sign of life; a session that has ended stays so."""
        if session_id in self._sessions and not self._is_unheard:
            self._sessions[session_id].heard_at = time.monotonic()

    @contextmanager
    def polling(self, session_id: str) -> Iterator[None]:
        """Within, the client of a session waits for an answer, which counts as contact all the while."""
        self.hear(session_id)
        self._num_polls[session_id] += 1
        try:
            yield
        finally:
            self._num_polls[session_id] -= 1
            if not self._num_polls[session_id]:
                del self._num_polls[session_id]
            self.hear(session_id)

    @contextmanager
    def receiving(self, lease: Lease) -> Iterator[None]:
        """Within, a body is on its way: each part of it is heard of all sessions of its tenant."""
        self._arriving[id(lease)] = lease
        try:
            yield
        finally:
            del self._arriving[id(lease)]

    def look(self, next_in_seconds: float) -> None:
        """Note that the server is awake, which looks again in so many seconds. One that was not heard nobody."""
        now = time.monotonic()
        if self._look_due_at is not None and now - self._look_due_at > _LATE_SECONDS:
            self.awake_since = now
        self._look_due_at = now + next_in_seconds

    def silent_seconds(self, session: Session) -> float:
        """For how long nothing has been heard of a session, while this server was awake."""
        now = time.monotonic()
        if session.session_id in self._num_polls:
            return 0.0
        parts = (lease.last_part_at for lease in self._arriving.values() if lease.owner == session.owner)
        return now - max(session.heard_at, self.awake_since, *parts)

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Within, a look-up is no sign of life: the server asks by itself, for a request that runs again."""
        self._is_unheard = True
        try:
            yield
        finally:
            self._is_unheard = False

    def session(self, session_id: str, owner: str) -> Session:
        """A live session, whose last contact is now.

        Raises:
            NoSessionError: it has ended, never was, or belongs to another tenant.
            StorageBusyError: it is to be brought back, which has failed so far; so for its models and samplers.
        """
        session = self._sessions.get(session_id)
        if session is None:
            self.check_aside(session_id)
        if session is None or session.owner != owner:
            raise NoSessionError(f"session {session_id!r} has ended, or never was; make a new ServiceClient")
        self.hear(session_id)
        return session

    def model(self, model_id: str, owner: str) -> Model:
        """A live model.

        Raises:
            NotFoundError: it is not loaded, or belongs to another tenant.
        """
        model = self._models.get(model_id)
        if model is None:
            self.check_aside(model_id.partition(":")[0])
        if model is None or model.owner != owner:
            raise (NotFoundError if model is None else ForeignError)(
                f"model {model_id!r} is not loaded: its session has ended, or it never was; "
                "make a training client from one of its checkpoints"
            )
        self.hear(model.session_id)
        return model

    def sampler(self, sampler_id: str, owner: str) -> Sampler:
        """A live sampler.

        Raises:
            NotFoundError: it is gone, or belongs to another tenant.
        """
        sampler = self._samplers.get(sampler_id)
        if sampler is None:
            self.check_aside(sampler_id.partition(":")[0])
        if sampler is None or sampler.owner != owner:
            raise (NotFoundError if sampler is None else ForeignError)(
                f"sampler {sampler_id!r} is gone with its session, or never was; make a new one"
            )
        self.hear(sampler.session_id)
        return sampler
