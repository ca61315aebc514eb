"""Requests of models on their way to the engine, each in its order. Lives on the event loop.

    submit ──► order of its model ──its turn──► run ── command ──► Pool ──► worker
                                                 │                              │
                                     Future ◄── result ◄───────── answer ◄──────┘

    worker lost ──► the model's state and what ran since, once more, in the order in which it ran ──► what waits

A request has its turn when all before it, of the same model, have submitted their commands; the engine runs these in
that order, and decides whose are run when. What a request does before and after its command (checksums, rows, encoding)
keeps nobody else waiting.

A tenant may have so many bytes held (`HeldBytes`, else `BusyError`), of which so many (`max_pending_bytes`) are with
the engine.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from cookhouse.engine.contract import CanceledError, ModelCommand
from cookhouse.errors import InputError
from cookhouse.server.access.bodies import HeldBytes
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.pending import forget_command
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.refusals import BusyError, LostError, StorageError, message_of
from cookhouse.server.sequencer.futures import Future, Futures, Result, log_failure
from cookhouse.server.sequencer.order import ModelOrder, Ready, SeenIds
from cookhouse.server.sequencer.queues import Attempt, History, Job, Queue, QueueLength
from cookhouse.server.sequencer.retries import Retries
from cookhouse.server.sequencer.sample_queue import SampleQueue
from cookhouse.server.sequencer.sampler_files import SamplerFiles
from cookhouse.server.sequencer.states import States
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import DropEntry, FinishEntry, GroupCommit, Journal, SetRunOrder

MakeJobs = Callable[[History], Iterable[Job]]
"""What has to run again, in order: first what brings the last state back."""


class Sequencer:
    """Requests of models, each in its order."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        meter: Meter,
        *,
        journal: Journal | None = None,
        on_finish: Callable[[Future], None] = lambda _future: None,
        is_shared: bool = False,
    ) -> None:
        """`journal` None: there is none. `on_finish` is called with each future that has its result. `is_shared`: other
        servers may take the models over.
        """
        self._settings = settings
        self._pool = pool = supervisor.pool
        self._meter = meter
        self._commit = None if journal is None else journal.commit
        self._is_shared = is_shared
        self.futures = Futures(
            result_seconds=settings.result_seconds,
            max_unfetched_sample_bytes=settings.max_unfetched_sample_bytes,
            max_unfetched_training_bytes=settings.max_unfetched_training_bytes,
            on_finish=on_finish,
            commit=self._commit,
        )
        self.held = HeldBytes(max_bytes=settings.max_held_bytes, max_owner_bytes=settings.max_queued_bytes)
        self.samples = SampleQueue(self.futures, settings, pool, self.held)
        self.retries = Retries(pool)
        self.sampler_files: SamplerFiles | None = None
        self._states: States | None = None
        if journal is not None:
            self.sampler_files = SamplerFiles(journal, pool, settings.max_snapshot_file_bytes)
            self._states = States(
                files=self.sampler_files,
                futures=self.futures,
                journal=journal,
                meter=meter,
                settings=settings,
                supervisor=supervisor,
            )
        self._queues: dict[str, Queue] = {}
        self._pending_bytes: Counter[str] = Counter()
        """By owner: of those that have had their turn."""
        self._held_back: defaultdict[str, deque[Queue]] = defaultdict(deque)
        """By owner: models whose next request waits until fewer bytes are pending."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def close(self) -> None:
        """The engine is about to end: what it fails from now on is not the result of a request."""
        self._is_closed = True

    def admit(self, model: Model, num_bytes: int) -> None:
        """Make room for a request, which is submitted or released next.

        Raises:
            BusyError: the model has too many that are not done, or its tenant holds too many bytes.
        """
        queue = self._queue(model)
        num_waiting = len(queue.unfinished) + queue.num_admitted
        if num_waiting >= self._settings.max_queued_requests:
            raise BusyError(f"{num_waiting} requests of {model.model_id} are waiting; send more when some are done")
        self.held.take(model.owner, num_bytes)
        queue.num_admitted += 1

    def release(self, model: Model, num_bytes: int) -> None:
        """Give back the room of a request that is not submitted after all."""
        self.held.give_back(model.owner, num_bytes)
        queue = self._queues.get(model.model_id)
        if queue is not None:
            queue.num_admitted -= 1
            if queue.is_unused:
                del self._queues[model.model_id]

    def submit(self, model: Model, seq_id: int | None, job: Job) -> None:
        """Queue a request that was admitted; its future gets the result."""
        queue = self._queue(model)
        queue.num_admitted -= 1
        queue.unfinished[job] = None
        queue.order.put(job, seq_id, time.monotonic())
        self._advance(queue)

    def has_seen(self, model: Model, request_id: str, seq_id: int | None) -> bool:
        """True if a request has come in. Of some that ran before a restart there is no more than the answer."""
        has_come = seq_id is not None and seq_id in self._queue(model).order.seen
        return has_come or self.futures.peek(request_id) is not None

    def restore(self, model: Model, history: History, seen: SeenIds, jobs: Sequence[Job]) -> None:
        """Take over a model from the journal, with what its last state lacks, in order."""
        queue = self._queue(model)
        for job in jobs:
            self.held.take_anyway(model.owner, job.num_bytes)
        queue.restore(history, seen, jobs, gap_seconds=self._settings.restart_gap_seconds)
        self._advance(queue)

    def run_again(self, model: Model, make_jobs: MakeJobs, *, is_loss: bool = True) -> int:
        """Have another worker do what one did for a model since its last state; how many requests that are. `is_loss`:
        it ended under a request.
        """
        queue = self._queue(model)
        queue.history.move()
        queue.is_taken = False
        dropped = queue.order.drop_again()
        if is_loss:
            self._give_up_on(queue)
        for job in make_jobs(queue.history):
            self._put_again(queue, job)
        for job in dropped:
            self._finish_job(queue, job)
            is_left = job.entry is not None and job.entry.request_id not in queue.history.ran
            if is_left and not queue.is_over(job):  # of a replay after a restart
                self._put_again(queue, job)
        num_requests = sum(job.entry is not None and job.runs_again for job in queue.unfinished)
        self._advance(queue)
        return num_requests

    def history(self, model: Model) -> History:
        """History of a model since its last state."""
        return self._queue(model).history

    def state_bytes(self, model_id: str) -> int:
        """Bytes that the last state of a model takes on the disk; 0 where there is none yet."""
        queue = self._queues.get(model_id)
        state = None if queue is None else queue.history.newest()[0]
        return 0 if state is None else state.num_bytes

    def length(self, model: Model) -> QueueLength:
        """Numbers of a model's requests that wait and run."""
        queue = self._queues.get(model.model_id)
        return QueueLength() if queue is None else queue.length()

    def running(self, model: Model) -> frozenset[Job]:
        """Jobs that are with the engine; none while it waits for memory."""
        queue = self._queues.get(model.model_id)
        is_waiting = queue is None or self.retries.reason(model.model_id) is not None
        return frozenset() if queue is None or is_waiting else frozenset(queue.running)

    def _put_again(self, queue: Queue, job: Job) -> None:
        self.held.take_anyway(queue.model.owner, job.num_bytes)
        queue.put_again(job)

    def _give_up_on(self, queue: Queue) -> None:
        """Fail the request that may be what ends workers: the first without a result, after so many losses."""
        for name, ran in queue.history.ran.items():
            future = self.futures.peek(name)
            if future is None or future.result is not None:
                continue
            ran.num_losses += 1
            if ran.num_losses >= self._settings.max_request_losses:
                error = LostError(f"the engine was lost {ran.num_losses} times under this request, which was left out")
                self._begin(self._fail_job(queue, Job(run=_not_run, future=future, entry=ran.entry), error))
                queue.history.finish(name)
            return

    def drop_model(self, model: Model, *, has_ended: bool = True) -> None:
        """Forget a model, here and in the engine. `has_ended`: nobody else goes on with it.

        What is with the engine ends as it says: what has begun is done, the rest is canceled.
        """
        model.is_dropped = True
        self._pool.forget(forget_command(model.owner, model.session_id, model_ids=(model.model_id,)))
        queue = self._queues.pop(model.model_id, None)
        if queue is None:
            return
        if queue.timer is not None:
            queue.timer.cancel()
        (self._meter.settle if has_ended else self._meter.let_go)(queue.history.ran)
        for job in queue.order.drain():
            self._finish_job(queue, job)

    def _queue(self, model: Model) -> Queue:
        if model.model_id not in self._queues:
            order: ModelOrder[Job] = ModelOrder(self._settings.gap_seconds)
            self._queues[model.model_id] = Queue(model=model, order=order)
        return self._queues[model.model_id]

    def _advance(self, queue: Queue) -> None:
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
        taken = queue.order.take()
        if queue.is_over(taken.request):
            self._pending_bytes[owner] -= num_bytes
            self._finish_job(queue, taken.request)
            self._advance(queue)
            return
        queue.begin(taken.request)
        self._begin(self._run(queue, taken, queue.history.num_moves))

    async def _run(self, queue: Queue, taken: Ready[Job], num_moves: int) -> None:
        """`num_moves`: of the model, when the request was given its turn."""
        job, has_turn = taken.request, True

        def end_turn(sent: ModelCommand | None = None) -> None:
            nonlocal has_turn
            if sent is not None and self._states is not None and job.entry is not None:
                self._states.follow(queue, job.entry.request_id, sent)
            if has_turn:
                has_turn = False
                if queue.history.num_moves == num_moves:  # else others have had their turns since
                    queue.is_taken = False
                    self._advance(queue)

        attempt = Attempt(
            pool=self._pool,
            model=queue.model,
            retries=self.retries if job.runs_again else None,  # its client may know that it is done
            is_current=lambda: queue.history.num_moves == num_moves,
            on_sent=end_turn,
        )
        try:
            if not (self._commit is None or job.entry is None or taken.is_in_order or job.is_creation):
                await self._write_place(queue, self._commit)
            result = await job.run(attempt)
        except Exception as error:
            # Else it runs again already, or ended while it did, and what it needed here may be gone since.
            is_last = queue.history.num_moves == num_moves and not queue.is_over(job)
            if is_last or job.entry is None or queue.model.is_dropped:
                self._count(queue, job, attempt)
                reported = _reported(queue.model, error)
                self._check_repeated(queue.model, job, reported)
                await self._fail_job(queue, job, reported)
        else:
            queue.history.count(attempt.sent_at, attempt.answered_at)
            self._count(queue, job, attempt)
            self._finish(queue, job, result)
        finally:
            self._pending_bytes[queue.model.owner] -= job.num_bytes
            self._finish_job(queue, job)
            end_turn()

    def _count(self, queue: Queue, job: Job, attempt: Attempt) -> None:
        """Count what a request used, the first time that it has run."""
        if self._commit is None:
            self._meter.count(attempt.spent)
        elif job.entry is not None and job.entry.request_id in queue.history.ran and not queue.model.is_dropped:
            self._meter.hold(job.entry.request_id, attempt.spent)

    async def _write_place(self, queue: Queue, commit: GroupCommit) -> None:
        """Write down which requests have run until now, where a replay would not know."""
        history = queue.history
        names, first_index = history.unindexed(), history.next_index
        history.next_index += len(names)
        await commit.keep(SetRunOrder(names, first_index))  # it has been accepted, and cannot be refused

    def _check_repeated(self, model: Model, job: Job, error: Exception) -> None:
        """Lose a model of which a request fails now that did not fail before: its weights would be others."""
        if not job.runs_again or not job.changes_model or job.entry is None or model.loss is not None:
            return
        had_result = job.future is None or (job.future.result is not None and not job.future.result.is_failure)
        if had_result or not isinstance(error, InputError):
            model.lose(f"what it did could not be done again: {message_of(error)}")

    async def _fail_job(self, queue: Queue, job: Job, error: Exception) -> None:
        """Give a job's future the error. It is on the disk before it is reported, since a replay might not fail.
        Where the store cannot be written for long it is before the next request that is accepted; where another server
        may take the model over meanwhile, it is reported only then.
        """
        log_failure(error)
        result = Result.of_error(error)
        if self._is_closed:
            return
        is_reported = job.future is None or job.future.result is not None
        is_kept = queue.model.loss is None and not queue.model.is_dropped  # an ended session's answers are not
        if self._commit is not None and job.entry is not None and is_kept and not is_reported:
            assert job.future is not None
            queue.history.finish(job.entry.request_id)
            self._meter.settle([job.entry.request_id])
            finish = FinishEntry(job.future.stored(result))
            try:
                await (self._commit.keep(finish) if self._is_shared else self._commit.commit(finish))
            except StorageError:
                if self._is_closed or self._is_shared:
                    return
                self._commit.later(finish)
        if job.future is not None:
            self.futures.finish(job.future, result)
        if job.entry is not None:  # what was to be published will not be
            queue.model.snapshots.pop(job.entry.drawn["id"], None)
            self._pool.give_up(job.entry.drawn["id"])

    def _finish(self, queue: Queue, job: Job, result: Result) -> None:
        """Give a job's future its result, if it has none yet. What has not changed the model need not run again."""
        if self._is_closed:
            return
        if job.future is not None:
            self.futures.finish(job.future, result)
        if self._commit is None or job.entry is None or job.changes_model or queue.model.is_dropped:
            return
        queue.history.finish(job.entry.request_id)
        self._meter.settle([job.entry.request_id])
        if job.future is None or job.future.result is None:
            self._commit.later(DropEntry(job.entry.request_id, job.entry.position))
        else:
            self._commit.later(FinishEntry(job.future.stored(job.future.result)))

    def _finish_job(self, queue: Queue, job: Job) -> None:
        """Give back what a request held."""
        owner = queue.model.owner
        queue.unfinished.pop(job, None)
        queue.running.discard(job)
        self.held.give_back(owner, job.num_bytes)
        waiting = self._held_back.pop(owner, deque())
        for held_back in waiting:
            self._advance(held_back)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reported(model: Model, error: Exception) -> Exception:
    """Error to report for a request that failed: what it needs may have gone with its session, or with its model."""
    if model.is_dropped or isinstance(error, CanceledError):
        return InputError(f"session {model.session_id} has ended")
    return LostError(model.loss or str(error)) if isinstance(error, LostError) else error


async def _not_run(_attempt: Attempt) -> Result:
    raise AssertionError("a request that was given up on has run")
