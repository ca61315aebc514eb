"""The one thread that calls the engine, and what waits for it.

    event loop ── submit / submit_sample / errand ──► [lock] queues, errands ──► engine thread ── Futures ──► event loop
                                                                                   │
                     errands first (loads, frees, new samples, cancels: all short) ┤
                     then a turn: training jobs, or one sampling step ─────────────┘

Bounds are those of `TrainingQueues` and of `max_queued_samples`; a full queue refuses with `BusyError`. The thread ends
when `stop` is called, after the turn it is in.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ConcurrentFuture
from dataclasses import dataclass
from functools import partial
from operator import methodcaller

from cookhouse.engine.contract import (
    BaseModelInfo,
    DamagedError,
    Engine,
    ForwardBackward,
    SampleOutput,
    SampleRequest,
)
from cookhouse.errors import CookhouseError, InputError
from cookhouse.server.refusals import BusyError
from cookhouse.server.sequencer.futures import PROTOBUF, Future, Futures, Result
from cookhouse.server.sequencer.meter import Account, Meter
from cookhouse.server.sequencer.turns import Job, TimeShare, TrainingQueues
from cookhouse.server.sessions.sessions import Snapshot
from cookhouse.server.sessions.snapshots import Snapshots
from cookhouse.server.settings import Settings
from cookhouse.server.store.usage import Usage
from cookhouse.server.wire import SampleShape, encode_pass, encode_sample

_log = logging.getLogger(__name__)

Errand = Callable[[Engine], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob(Job):
    """Training work and the future that waits for it: a pass to be run, or else a function to be called."""

    future: Future
    request: ForwardBackward | None = None
    run: Callable[[Engine], Result | None] | None = None
    """Returns None if it finishes the future itself, later."""


OnOutput = Callable[[SampleOutput], None]
"""Told in the engine's thread of what a sampling request gives: the last that it is told of is not partial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningSample:
    account: Account
    snapshot: Snapshot | None
    num_prompt_tokens: int
    on_output: OnOutput


class Sequencer:
    """Feeds one engine, in an order that is fair and that each model's client expects."""

    def __init__(self, futures: Futures, settings: Settings, snapshots: Snapshots) -> None:
        self._futures = futures
        self._settings = settings
        self._snapshots = snapshots
        self._wake = threading.Condition()
        self._queues: TrainingQueues[EngineJob] = TrainingQueues(
            gap_seconds=settings.gap_seconds,
            max_pass_tokens=settings.max_pass_tokens,
            max_queued_requests=settings.max_queued_requests,
            max_queued_bytes=settings.max_queued_bytes,
        )
        self._errands: deque[Errand] = deque()
        self._num_samples: Counter[str] = Counter()
        self._is_stopping = False
        self._share = TimeShare()
        self._samples: dict[str, _RunningSample] = {}
        self._thread: threading.Thread | None = None
        self.meter = Meter()
        self.ready: ConcurrentFuture[Sequence[BaseModelInfo]] = ConcurrentFuture()
        """The base models, once the engine has been made; or what went wrong."""

    def start(self, make_engine: Callable[[], Engine]) -> None:
        # A daemon: a pass may take minutes, and must not keep a process alive that was told to end.
        self._thread = threading.Thread(target=self._run, args=(make_engine,), name="engine", daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """End the thread after its present turn; False if that takes longer than `seconds`."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def submit(self, job: EngineJob) -> None:
        """Queue training work.

        Raises:
            BusyError: the queue is full.
        """
        with self._wake:
            self._queues.put(job)
            self._wake.notify()

    def note(self, model_id: str, seq_id: int) -> None:
        """Say that this request came in and was answered without the engine."""
        with self._wake:
            self._queues.note(model_id, seq_id)

    def errand(self, run: Errand) -> None:
        """Have something short done before the next turn; errands keep their order."""
        with self._wake:
            self._errands.append(run)
            self._wake.notify()

    def drop_model(self, model_id: str) -> Sequence[Future]:
        """Forget a model's waiting work; the futures of it are returned, for the caller to finish."""
        with self._wake:
            return [job.future for job in self._queues.drop(model_id)]

    def submit_sample(
        self, request: SampleRequest, shape: SampleShape, future: Future, snapshot: Snapshot | None
    ) -> None:
        """Hand a sampling request to the engine, and its result to a future. Raises as `stream_sample`."""

        def finish(output: SampleOutput) -> None:
            if output.error is not None:
                self._fail(future, output.error)
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
        """Hand a sampling request to the engine, which has its own queue.

        Raises:
            BusyError: the tenant has too many waiting.
        """
        with self._wake:
            if self._num_samples[owner] >= self._settings.max_queued_samples:
                raise BusyError(
                    f"{self._num_samples[owner]} sampling requests are waiting; send more when some are done"
                )
            self._num_samples[owner] += 1
        sample = _RunningSample(
            account=Account(owner, session_id or f"endpoint-{owner}"),
            snapshot=snapshot,
            num_prompt_tokens=request.prompt_T.size,
            on_output=on_output,
        )
        self.errand(lambda engine: self._start_sample(engine, request, sample))

    def cancel_samples(self, request_ids: Sequence[str], error: InputError) -> None:
        """Drop samples that wait and stop those that run; they fail with the error, and what is done stays so."""

        def cancel(engine: Engine) -> None:
            for request_id in request_ids:
                sample = self._end_sample(request_id)
                if sample is not None:
                    sample.on_output(SampleOutput(request_id=request_id, error=error))
                    engine.cancel_sample(request_id)

        self.errand(cancel)

    # Everything below runs in the engine's thread.

    def _run(self, make_engine: Callable[[], Engine]) -> None:
        try:
            engine = make_engine()
            base_models = engine.base_models()
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(base_models)
        while not self._is_stopping:
            errands, jobs, can_sample = self._wait_for_turn(engine)
            for errand in errands:
                self._guarded(engine, errand)
            served = [(_account(job), job.num_tokens) for job in jobs] or [
                (sample.account, 1) for sample in self._samples.values() if can_sample
            ]
            started_at = time.monotonic()
            if jobs:
                self._run_jobs(engine, jobs)
            elif can_sample:
                self._step_samples(engine)
            if jobs or can_sample:
                seconds = time.monotonic() - started_at
                self._share.charge(seconds, training=bool(jobs))
                if served:
                    self.meter.charge(served, seconds)

    def _wait_for_turn(self, engine: Engine) -> tuple[Sequence[Errand], Sequence[EngineJob], bool]:
        """What to do next: errands, or jobs, or (True) a sampling step."""
        can_sample = engine.has_samples()
        with self._wake:
            while True:
                wait_seconds = self._queues.wait_seconds(time.monotonic())
                if self._is_stopping:
                    return (), (), False
                if self._errands:
                    errands = list(self._errands)
                    self._errands.clear()
                    return errands, (), False
                can_train = wait_seconds == 0
                if can_train or can_sample:
                    break
                self._wake.wait(wait_seconds)
            if self._share.is_trainings_turn(can_train=can_train, can_sample=can_sample):
                return (), self._queues.take(time.monotonic()), False
            return (), (), True

    def _guarded(self, engine: Engine, errand: Errand) -> None:
        try:
            errand(engine)
        except Exception:
            _log.exception("an errand to the engine failed")

    def _run_jobs(self, engine: Engine, jobs: Sequence[EngineJob]) -> None:
        try:
            if jobs[0].run is not None:
                result = jobs[0].run(engine)
                if result is not None:
                    self._finish(jobs[0].future, result)
                return
            requests = [job.request for job in jobs if job.request is not None]
            for job, output in zip(jobs, engine.forward_backward(requests), strict=True):
                if isinstance(output, Exception):
                    self._fail(job.future, output)
                else:
                    is_scored = job.request is not None and job.request.forward_only
                    kind = "scored_tokens" if is_scored else "trained_tokens"
                    self.meter.count(_account(job), Usage(**{kind: job.num_tokens}))
                    self._finish_encoded(job.future, partial(encode_pass, output))
        except Exception as error:
            for job in jobs:
                self._fail(job.future, error)

    def _start_sample(self, engine: Engine, request: SampleRequest, sample: _RunningSample) -> None:
        self._samples[request.request_id] = sample
        if sample.snapshot is not None:
            sample.snapshot.num_samples += 1
        try:
            if sample.snapshot is not None:
                if sample.snapshot.error is not None:
                    raise sample.snapshot.error
                if sample.snapshot.is_made:
                    self._snapshots.use(engine, sample.snapshot)
            engine.submit_sample(request)
        except Exception as error:
            self._end_sample(request.request_id)
            sample.on_output(SampleOutput(request_id=request.request_id, error=error))

    def _step_samples(self, engine: Engine) -> None:
        try:
            for output in engine.step_samples():
                self._tell(output)
        except Exception as error:
            # Which request is to blame cannot be told, and trying again would fail again.
            for request_id in list(self._samples):
                sample = self._end_sample(request_id)
                if sample is not None:
                    sample.on_output(SampleOutput(request_id=request_id, error=error))
                self._guarded(engine, methodcaller("cancel_sample", request_id))

    def _tell(self, output: SampleOutput) -> None:
        request_id = output.request_id
        sample = self._samples.get(request_id) if output.is_partial else self._end_sample(request_id)
        if sample is not None:
            if not output.is_partial and output.error is None:
                num_sampled = sum(sequence.tokens_T.size for sequence in output.sequences)
                used = Usage(prompt_tokens=sample.num_prompt_tokens, sampled_tokens=num_sampled)
                self.meter.count(sample.account, used)
            sample.on_output(output)

    def _end_sample(self, request_id: str) -> _RunningSample | None:
        sample = self._samples.pop(request_id, None)
        if sample is not None:
            if sample.snapshot is not None:
                sample.snapshot.num_samples -= 1
            with self._wake:
                self._num_samples[sample.account.owner] -= 1
        return sample

    def _finish_encoded(self, future: Future, encode: Callable[[], bytes]) -> None:
        """Hand over a result, or why it cannot be encoded: one that is too large must not fail its neighbors."""
        try:
            result = Result(body=encode(), media_type=PROTOBUF, kind="forward_backward")
        except Exception as error:
            self._fail(future, error)
        else:
            self._finish(future, result)

    def _finish(self, future: Future, result: Result) -> None:
        self._futures.finish_threadsafe(future, result)

    def _fail(self, future: Future, error: Exception) -> None:
        if not isinstance(error, CookhouseError) or isinstance(error, DamagedError):
            _log.error("the engine failed", exc_info=error)
        self._finish(future, Result.of_error(error))


def _account(job: EngineJob) -> Account:
    return Account(job.future.owner, job.future.session_id)
