"""Results that clients wait for. All of it lives on the event loop.

    submit ──► create ──► request_id ──► client ──► wait ◄── event ── finish ◄── sequencer
                                                     │
                                         first fetch starts the clock of `sweep`

A result survives any number of fetches: an answer that was lost on the way is asked for again.
"""

import asyncio
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cookhouse.engine.contract import DamagedError
from cookhouse.errors import CookhouseError, ServiceError
from cookhouse.server.refusals import GoneError, NotFoundError, blame_of, message_of
from cookhouse.server.sessions.sessions import part_of
from cookhouse.server.storage.journal import Answer, DropAnswers, GroupCommit

_log = logging.getLogger(__name__)
_RECORD_BYTES = 1024
"""About what a future takes besides the body of its result."""
_FETCH_AGAIN_SECONDS = 60.0
"""After it was fetched, a result may still be asked for: its answer was lost on the way."""
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
TRAIN_PREFIX, _SAMPLE_PREFIX = "train-", "sample-"


class Unfetched:
    """Counts results in bytes. Beyond `max_bytes`, of all tenants together, the one with the most loses its oldest."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._sizes: dict[str, OrderedDict[str, int]] = {}
        """By tenant and request."""
        self._totals: dict[str, int] = {}

    def add(self, request_id: str, owner: str, body_bytes: int) -> Sequence[str]:
        """Count a result; the requests whose results are to be dropped, and are no longer counted."""
        num_bytes = body_bytes + _RECORD_BYTES
        self._sizes.setdefault(owner, OrderedDict())[request_id] = num_bytes
        self._totals[owner] = self._totals.get(owner, 0) + num_bytes
        dropped = []
        while sum(self._totals.values()) > self.max_bytes:
            largest = max(self._totals, key=self._totals.__getitem__)
            dropped.append(next(iter(self._sizes[largest])))
            self.discard(dropped[-1], largest)
        return dropped

    def discard(self, request_id: str, owner: str) -> None:
        """Stop counting a result; one that is not counted is left as it is."""
        if request_id not in self._sizes.get(owner, ()):
            return
        self._totals[owner] -= self._sizes[owner].pop(request_id)
        if not self._sizes[owner]:
            del self._sizes[owner], self._totals[owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An answer of `retrieve_future`, ready to send."""

    body: bytes
    media_type: str = JSON
    is_failure: bool = False
    status: int = 200
    """Of the answer; 410 has the SDK sample again."""
    kind: str = ""
    """Of the request, where the result knows it."""

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "Result":
        return cls(body=json.dumps(content, allow_nan=False).encode(), kind=str(content.get("type", "")))

    @classmethod
    def of_error(cls, error: BaseException) -> "Result":
        content = {"error": message_of(error), "category": blame_of(error)}
        status = 410 if isinstance(error, GoneError) else 200
        return cls(body=json.dumps(content).encode(), is_failure=True, status=status)


@dataclass(slots=True, kw_only=True)
class Future:
    """One accepted request; `done` is set when `result` is there."""

    request_id: str
    owner: str
    session_id: str
    result: Result | None = None
    finish_index: int | None = None
    """Place in the order in which futures finished, from 1."""
    fetched_at: float | None = None
    begun_at: float = field(default_factory=time.time)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    on_done: Callable[[], None] | None = None
    is_stored: bool = False
    """Whether the journal has its result."""

    @property
    def is_sample(self) -> bool:
        return self.request_id.startswith(_SAMPLE_PREFIX)

    def stored(self, result: Result) -> Answer:
        """A result as the journal keeps it, which has it from now on."""
        self.is_stored = True
        return Answer(
            request_id=self.request_id,
            session_id=self.session_id,
            owner=self.owner,
            media_type=result.media_type,
            status=result.status,
            is_failure=result.is_failure,
            kind=result.kind,
            body=result.body,
        )


class Futures:
    """The futures of a server, and when to forget them.

    Results stay until they are fetched, and `result_seconds` beyond that; those that nobody fetches are kept up to so
    many bytes. The SDK samples again where a sampling result is gone. A training result cannot be had again:
    what was asked for has been done.
    """

    def __init__(
        self,
        *,
        result_seconds: float,
        max_unfetched_sample_bytes: int,
        max_unfetched_training_bytes: int,
        on_finish: Callable[[Future], None] = lambda _future: None,
        commit: GroupCommit | None = None,
    ) -> None:
        """`on_finish` is called with each future that has its result; `commit` None: there is no journal."""
        self._on_finish = on_finish
        self._commit = commit
        self._result_seconds = result_seconds
        self._futures: dict[str, Future] = {}
        self._fetched: OrderedDict[str, None] = OrderedDict()
        self._unfetched = {
            True: Unfetched(max_unfetched_sample_bytes),
            False: Unfetched(max_unfetched_training_bytes),
        }
        """By whether they are of samples."""
        self._num_finished = 0
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Send every waiter away; the process is about to end."""
        self._closed.set()
        for future in self._futures.values():
            future.done.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def __len__(self) -> int:
        return len(self._futures)

    def create(self, request_id: str, *, owner: str, session_id: str) -> Future:
        """The future of a training request."""
        future = self._futures[request_id] = Future(request_id=request_id, owner=owner, session_id=session_id)
        return future

    def create_sample(self, *, owner: str, session_id: str, on_done: Callable[[], None] | None = None) -> Future:
        """The future of a sampling request, which gets a new id."""
        request_id = _SAMPLE_PREFIX + part_of(session_id) + secrets.token_hex(12)
        future = Future(request_id=request_id, owner=owner, session_id=session_id, on_done=on_done)
        self._futures[request_id] = future
        return future

    def restore(self, answer: Answer) -> None:
        """A future whose result the journal has."""
        future = self.create(answer.request_id, owner=answer.owner, session_id=answer.session_id)
        future.is_stored = True
        result = Result(
            body=answer.body,
            media_type=answer.media_type,
            is_failure=answer.is_failure,
            status=answer.status,
            kind=answer.kind,
        )
        self.finish(future, result)

    def get(self, request_id: str, owner: str) -> Future:
        """The future a tenant asks for.

        Raises:
            GoneError: a sampling result that was dropped; sampling again gives it back.
            NotFoundError: there is none, or it belongs to another tenant, or a training result was dropped.
        """
        future = self._futures.get(request_id)
        if future is not None and future.owner == owner:
            return future
        if request_id.startswith(_SAMPLE_PREFIX):
            raise GoneError(f"the result of {request_id} is no longer kept; submit the sample again")
        raise NotFoundError(
            f"unknown request {request_id!r}: it never was here, or its result was dropped, {self._result_seconds:g} s "
            f"after it was fetched or because more than {self._unfetched[False].max_bytes} bytes of results waited "
            "to be fetched. What a dropped result was of has been done; fetch results as they come"
        )

    def peek(self, request_id: str) -> Future | None:
        return self._futures.get(request_id)

    async def wait(self, future: Future, seconds: float) -> Result | None:
        """The result, as soon as it is there; None after `seconds`, or when the server closes."""
        if future.result is None and not self._closed.is_set():
            try:
                await asyncio.wait_for(future.done.wait(), seconds)
            except TimeoutError:
                return None
        if future.result is not None:
            self._mark_fetched(future)
        return future.result

    def finish(self, future: Future, result: Result) -> None:
        """Set a result and wake who waits for it; the first one counts."""
        if future.result is not None:
            return
        self._num_finished += 1
        future.result, future.finish_index = result, self._num_finished
        future.done.set()
        if future.on_done is not None:
            future.on_done()
        self._on_finish(future)
        if future.request_id in self._futures:
            for request_id in self._unfetched[future.is_sample].add(future.request_id, future.owner, len(result.body)):
                self.drop(request_id)

    def drop(self, request_id: str) -> None:
        """Forget a future; who waits for it right now still gets its result."""
        future = self._futures.pop(request_id, None)
        self._fetched.pop(request_id, None)
        if future is not None:
            self._unfetched[future.is_sample].discard(request_id, future.owner)
            if future.is_stored and self._commit is not None:
                self._commit.later(DropAnswers([request_id]))

    def let_go(self, session_id: str) -> None:
        """Forget a session's futures here; what the journal has of them stays."""
        for future in [future for future in self._futures.values() if future.session_id == session_id]:
            del self._futures[future.request_id]
            self._fetched.pop(future.request_id, None)
            self._unfetched[future.is_sample].discard(future.request_id, future.owner)

    def sweep(self) -> None:
        """Forget results that were fetched long enough ago."""
        for future in list(self._fetched_for(self._result_seconds)):
            self.drop(future.request_id)

    def forget_stored(self) -> None:
        """Have the journal forget results that nobody asks for again, also after a restart."""
        stored = [future for future in self._fetched_for(_FETCH_AGAIN_SECONDS) if future.is_stored]
        for future in stored:
            future.is_stored = False
        if stored and self._commit is not None:
            self._commit.later(DropAnswers([future.request_id for future in stored]))

    def unstored(self, request_ids: Iterable[str]) -> Sequence[Answer]:
        """Results of these requests that may still be asked for, and are not in the journal; they are from now on."""
        answers = []
        for future in map(self._futures.get, request_ids):
            if future is None or future.result is None or future.is_stored:
                continue
            if future.fetched_at is None or time.monotonic() - future.fetched_at < _FETCH_AGAIN_SECONDS:
                answers.append(future.stored(future.result))
        return answers

    async def finished(self, request_ids: Iterable[str]) -> None:
        """Wait until all of these requests have their results. Raises ServiceError: the server stops before."""
        for name in request_ids:
            future = self._futures.get(name)
            if future is None:
                continue
            await future.done.wait()
            if future.result is None:
                raise ServiceError("the server is stopping")

    def _fetched_for(self, seconds: float) -> Iterator[Future]:
        """Futures whose results were fetched at least so long ago."""
        latest = time.monotonic() - seconds
        for future in map(self._futures.__getitem__, self._fetched):
            if future.fetched_at is not None and future.fetched_at > latest:
                return  # in order of the first fetch, so all the rest are younger
            yield future

    def unfinished_samples(self, session_id: str) -> Sequence[str]:
        """Request ids of a session's samples that wait or run."""
        return [future.request_id for future in self.unfinished(session_id) if future.is_sample]

    def unfinished(self, session_id: str) -> Sequence[Future]:
        """Futures of a session that have no result."""
        return [one for one in self._futures.values() if one.session_id == session_id and one.result is None]

    @property
    def are_finished(self) -> bool:
        return all(future.result is not None for future in self._futures.values())

    @property
    def are_fetched(self) -> bool:
        return all(future.fetched_at is not None for future in self._futures.values())

    def start_clock(self, session_id: str) -> None:
        """Treat a session's futures as fetched: nobody may come for them any more."""
        for future in list(self._futures.values()):
            if future.session_id == session_id:
                self._mark_fetched(future)

    def _mark_fetched(self, future: Future) -> None:
        if future.fetched_at is None and future.request_id in self._futures:
            future.fetched_at = time.monotonic()
            self._fetched[future.request_id] = None
            self._unfetched[future.is_sample].discard(future.request_id, future.owner)


def log_failure(error: Exception) -> None:
    """Write into the log what is not the caller's doing."""
    if isinstance(error, DamagedError) or not isinstance(error, CookhouseError):
        _log.error("a request failed", exc_info=error)
