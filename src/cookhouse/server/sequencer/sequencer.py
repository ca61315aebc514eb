"""What clients asked for, on its way to the engine. Lives on the event loop.

    submit ──► order of its model ──its turn──► run ── command ──► Calls ──► worker
                                                 │                              │
                                     Future ◄── result ◄───────── answer ◄──────┘

A request has its turn when all before it, of the same model, have submitted their commands; the engine runs these in
that order, and decides whose are run when. What a request does before and after its command (checksums, rows, encoding)
keeps nobody else waiting.

A tenant may have so many bytes held (`HeldBytes`, else `BusyError`), of which so many (`max_pending_bytes`) are with
the engine.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from cookhouse.engine.contract import (
    Account,
    CanceledError,
    DamagedError,
    Forget,
    ModelCommand,
    Output,
    Sample,
    SampleOutput,
    SampleRequest,
)
from cookhouse.errors import CookhouseError, InputError
from cookhouse.server.refusals import BusyError, LostError
from cookhouse.server.sequencer.calls import Calls
from cookhouse.server.sequencer.futures import PROTOBUF, Future, Futures, Result
from cookhouse.server.sequencer.held import HeldBytes
from cookhouse.server.sequencer.order import ModelOrder
from cookhouse.server.sessions.sessions import Model, Snapshot
from cookhouse.server.settings import Settings
from cookhouse.server.wire import SampleShape, encode_sample

_log = logging.getLogger(__name__)
_INLINE_TOKENS = 16_384
"""Of a result, what is encoded on the event loop; more is encoded in a thread."""

OnOutput = Callable[[SampleOutput | Exception], None]
"""Told what a sampling request gives: the last that it is told is not partial, or is why there is no more."""


class Turn:
    """The turn of a request: from `send` on, the next request of its model has its own."""

    def __init__(self, calls: Calls, model: Model, end: Callable[[], None]) -> None:
        self._calls = calls
        self._model = model
        self._end = end

    async def send(self, command: ModelCommand) -> Output:
        """Submit the command, and wait for its answer.

        Raises:
            InputError: the caller is to blame, or the model's session has ended.
            ServiceError: the engine failed, or was lost.
        """
        if self._model.is_dropped:
            raise InputError(f"session {self._model.session_id} has ended")
        if self._model.loss is not None:
            raise LostError(self._model.loss)
        answer = self._calls.send(command)
        self._end()
        return await answer


Run = Callable[[Turn], Awaitable[Result]]
"""Does what a request asks for, in its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request on a model, and the future that waits for it."""

    future: Future
    run: Run
    num_bytes: int = 0
    """Of its arrays."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Queue:
    model: Model
    order: ModelOrder[Job]
    unfinished: dict[str, Job] = field(default_factory=dict)
    """By request: those that wait, and those that have had their turn."""
    is_taken: bool = False
    """Whether a request has its turn now."""
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    owner: str
    num_bytes: int
    on_output: OnOutput


class Sequencer:
    """Requests of models, each in its order, and samples, which have none."""

    def __init__(self, futures: Futures, settings: Settings, calls: Calls, held: HeldBytes) -> None:
        self._futures = futures
        self._settings = settings
        self._calls = calls
        self._queues: dict[str, _Queue] = {}
        self._held = held
        self._pending_bytes: Counter[str] = Counter()
        """By owner: of those that have had their turn."""
        self._held_back: defaultdict[str, deque[_Queue]] = defaultdict(deque)
        """By owner: models whose next request waits until fewer bytes are pending."""
        self._samples: dict[str, _Sampling] = {}
        self._num_samples: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, model: Model, seq_id: int) -> None:
        """Say that a request came in which will not run, so that nothing waits for it."""
        queue = self._queue(model)
        queue.order.note(seq_id)
        self._advance(queue)

    def submit(self, model: Model, seq_id: int | None, job: Job) -> None:
        """Queue a request; its future gets the result.

        Raises:
            BusyError: the model has too many that are not done, or its tenant holds too many bytes.
        """
        queue = self._queue(model)
        if len(queue.unfinished) >= self._settings.max_queued_requests:
            raise BusyError(
                f"{len(queue.unfinished)} requests of {model.model_id} are waiting; send more when some are done"
            )
        self._held.take(model.owner, job.num_bytes)
        queue.unfinished[job.future.request_id] = job
        queue.order.put(job, seq_id, time.monotonic())
        self._advance(queue)

    def drop_model(self, model: Model) -> Sequence[Future]:
        """Forget a model, here and in the engine; the futures that wait are returned, for the caller to finish.

        What is with the engine ends as it says: what has begun is done, the rest is canceled.
        """
        model.is_dropped = True
        self._calls.forget(_forget(model.owner, model.session_id, model_ids=(model.model_id,)))
        queue = self._queues.pop(model.model_id, None)
        if queue is None:
            return ()
        if queue.timer is not None:
            queue.timer.cancel()
        waiting = queue.order.drain()
        for job in waiting:
            self._finish_job(queue, job)
        return [job.future for job in waiting]

    def submit_sample(
        self, request: SampleRequest, shape: SampleShape, future: Future, snapshot: Snapshot | None
    ) -> None:
        """Hand a sampling request to the engine, and its result to a future. Raises as `stream_sample`."""

        def finish(output: SampleOutput | Exception) -> None:
            if isinstance(output, Exception):
                self._fail(future, output)
            elif sum(sequence.tokens_T.size for sequence in output.sequences) > _INLINE_TOKENS:
                self._begin(self._encode(future, output, shape))
            else:
                self._finish_encoded(future, partial(encode_sample, output, shape))

        self.stream_sample(request, snapshot, finish, owner=future.owner, session_id=future.session_id)

    def stream_sample(
        self,
        request: SampleRequest,
        snapshot: Snapshot | None,
        on_output: OnOutput,
        *,
        owner: str,
        session_id: str | None = None,
    ) -> None:
        """Hand a sampling request to the engine.

        Raises:
            BusyError: the tenant has too many waiting, or holds too many bytes.
        """
        if self._num_samples[owner] >= self._settings.max_queued_samples:
            raise BusyError(f"{self._num_samples[owner]} sampling requests are waiting; send more when some are done")
        self._held.take(owner, request.num_bytes)
        self._num_samples[owner] += 1
        self._samples[request.request_id] = _Sampling(owner=owner, num_bytes=request.num_bytes, on_output=on_output)
        account = Account(owner, session_id or f"endpoint-{owner}")
        command = Sample(command_id=request.request_id, account=account, request=request)
        if snapshot is None or snapshot.ready.done():
            self._send_sample(command, snapshot)
        else:
            snapshot.ready.add_done_callback(lambda _: self._send_sample(command, snapshot))

    def cancel_samples(self, request_ids: Sequence[str], error: InputError) -> None:
        """Drop samples that wait and stop those that run; they fail with the error, and what is done stays so."""
        by_owner: defaultdict[str, list[str]] = defaultdict(list)
        for request_id in request_ids:
            if request_id in self._samples:
                by_owner[self._samples[request_id].owner].append(request_id)
                self._end_sample(request_id, error)
        for owner, ids in by_owner.items():
            self._calls.forget(_forget(owner, "", command_ids=tuple(ids)))

    def free_snapshot(self, snapshot: Snapshot) -> None:
        """Have the engine forget weights."""
        self._calls.forget(_forget(snapshot.owner, "", snapshot_ids=(snapshot.snapshot_id,)))

    def _queue(self, model: Model) -> _Queue:
        if model.model_id not in self._queues:
            order: ModelOrder[Job] = ModelOrder(self._settings.gap_seconds)
            self._queues[model.model_id] = _Queue(model=model, order=order)
        return self._queues[model.model_id]

    def _advance(self, queue: _Queue) -> None:
        """Give the next request of a model its turn, if it is time."""
        ready_at = queue.order.ready_at()
        if queue.is_taken or ready_at is None:
            return
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        wait_seconds = ready_at - time.monotonic()
        if ready_at and wait_seconds > 0:
            queue.timer = asyncio.get_running_loop().call_later(wait_seconds, self._advance, queue)
            return
        owner, num_bytes = queue.model.owner, queue.order.first().num_bytes
        pending = self._pending_bytes[owner]
        if pending and pending + num_bytes > self._settings.max_pending_bytes:
            if queue not in self._held_back[owner]:
                self._held_back[owner].append(queue)
            return
        self._pending_bytes[owner] += num_bytes
        queue.is_taken = True
        self._begin(self._run(queue, queue.order.take()))

    async def _run(self, queue: _Queue, job: Job) -> None:
        has_turn = True

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = queue.is_taken = False
                self._advance(queue)

        try:
            result = await job.run(Turn(self._calls, queue.model, end_turn))
        except LostError as error:
            self._fail(job.future, LostError(queue.model.loss or str(error)))
        except CanceledError:
            self._fail(job.future, InputError(f"session {queue.model.session_id} has ended"))
        except Exception as error:
            self._fail(job.future, error)
        else:
            self._futures.finish(job.future, result)
        finally:
            self._pending_bytes[queue.model.owner] -= job.num_bytes
            self._finish_job(queue, job)
            end_turn()

    def _finish_job(self, queue: _Queue, job: Job) -> None:
        """Give back what a request held."""
        owner = queue.model.owner
        queue.unfinished.pop(job.future.request_id, None)
        self._held.give_back(owner, job.num_bytes)
        waiting = self._held_back.pop(owner, deque())
        for held_back in waiting:
            self._advance(held_back)

    def _send_sample(self, command: Sample, snapshot: Snapshot | None) -> None:
        request_id = command.command_id
        if request_id not in self._samples:  # canceled while its weights were looked for
            return
        if snapshot is not None and snapshot.error is not None:
            # The caller has the request's id first.
            asyncio.get_running_loop().call_soon(self._end_sample, request_id, snapshot.error)
            return
        answer = self._calls.send(command, self._samples[request_id].on_output)
        answer.add_done_callback(partial(self._take_answer, request_id, snapshot))

    def _take_answer(self, request_id: str, snapshot: Snapshot | None, answer: "asyncio.Future[Output]") -> None:
        output = answer.exception() or answer.result()
        if isinstance(output, LostError) and snapshot is not None and snapshot.error is not None:
            output = snapshot.error
        assert isinstance(output, SampleOutput | Exception)
        self._end_sample(request_id, output)

    def _end_sample(self, request_id: str, output: SampleOutput | Exception) -> None:
        sampling = self._samples.pop(request_id, None)
        if sampling is not None:
            self._num_samples[sampling.owner] -= 1
            self._held.give_back(sampling.owner, sampling.num_bytes)
            sampling.on_output(output)

    async def _encode(self, future: Future, output: SampleOutput, shape: SampleShape) -> None:
        try:
            body = await asyncio.to_thread(encode_sample, output, shape)
        except Exception as error:
            self._fail(future, error)
        else:
            self._futures.finish(future, Result(body=body, media_type=PROTOBUF, kind="sample"))

    def _finish_encoded(self, future: Future, encode: Callable[[], bytes]) -> None:
        try:
            result = Result(body=encode(), media_type=PROTOBUF, kind="sample")
        except Exception as error:
            self._fail(future, error)
        else:
            self._futures.finish(future, result)

    def _fail(self, future: Future, error: Exception) -> None:
        if isinstance(error, DamagedError) or not isinstance(error, CookhouseError):
            _log.error("a request failed", exc_info=error)
        self._futures.finish(future, Result.of_error(error))

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _forget(
    owner: str,
    session_id: str,
    *,
    model_ids: tuple[str, ...] = (),
    snapshot_ids: tuple[str, ...] = (),
    command_ids: tuple[str, ...] = (),
) -> Forget:
    return Forget(
        command_id="",
        account=Account(owner, session_id),
        model_ids=model_ids,
        snapshot_ids=snapshot_ids,
        command_ids=command_ids,
    )
