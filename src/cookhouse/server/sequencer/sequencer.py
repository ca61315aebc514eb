"""What clients asked of models, on its way to the engine. Lives on the event loop.

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
from functools import partial

from cookhouse.engine.contract import CanceledError, ModelCommand
from cookhouse.errors import InputError
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.pending import forget_command
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import BusyError, LostError, StorageError, message_of
from cookhouse.server.sequencer.futures import Futures, Result, tell_failure
from cookhouse.server.sequencer.held import HeldBytes
from cookhouse.server.sequencer.history import History
from cookhouse.server.sequencer.order import ModelOrder, SeenIds, Taken
from cookhouse.server.sequencer.patience import Patience
from cookhouse.server.sequencer.queues import Job, Queue, QueueLength
from cookhouse.server.sequencer.states import States, answer_of
from cookhouse.server.sequencer.turn import Turn
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import DropEntry, FinishEntry, GroupCommit, SetRunOrder

MakeJobs = Callable[[History], Iterable[Job]]
"""What has to run again, in order: first what brings the last state back."""


class Sequencer:
    """Requests of models, each in its order."""

    def __init__(
        self,
        futures: Futures,
        settings: Settings,
        pool: Pool,
        held: HeldBytes,
        meter: Meter,
        *,
        commit: GroupCommit | None = None,
        states: States | None = None,
        is_shared: bool = False,
    ) -> None:
        """`commit` and `states` None: there is no journal. `is_shared`: other servers may take the models over."""
        self._meter = meter
        self._futures = futures
        self._settings = settings
        self._pool = pool
        self.patience = Patience(pool)
        self._commit = commit
        self._states = states
        self._is_shared = is_shared
        self._queues: dict[str, Queue] = {}
        self._held = held
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
        self._held.take(model.owner, num_bytes)
        queue.num_admitted += 1

    def release(self, model: Model, num_bytes: int) -> None:
        """Give back the room of a request that is not submitted after all."""
        self._held.give_back(model.owner, num_bytes)
        queue = self._queues.get(model.model_id)
        if queue is not None:
            queue.num_admitted -= 1
            if not (queue.num_admitted or queue.unfinished) and (model.is_dropped or not model.creation):
                del self._queues[model.model_id]

    def submit(self, model: Model, seq_id: int | None, job: Job) -> None:
        """Queue a request that was admitted; its future gets the result."""
        queue = self._queue(model)
        queue.num_admitted -= 1
        queue.unfinished[job] = None
        queue.order.put(job, seq_id, time.monotonic())
        self._advance(queue)

    def has_seen(self, model: Model, seq_id: int) -> bool:
        """Whether a request with this id has come in."""
        return seq_id in self._queue(model).order.seen

    def restore(self, model: Model, history: History, seen: SeenIds, jobs: Sequence[Job]) -> None:
        """Take over a model from the journal, with what its last state lacks, in order.

        What is known to have run in another order than that of ids has its `run_index`, and comes first.
        """
        queue = self._queue(model)
        queue.history, queue.order.seen = history, seen
        queue.order.patient_to = time.monotonic() + self._settings.restart_gap_seconds
        entries = [job.entry for job in jobs if job.entry is not None]
        ran_to = [1 + (entry.seq_id or 0) for entry in entries if entry.run_index is not None]
        taken_to, last_id = max([seen.taken_to, *ran_to]), max([entry.seq_id or 0 for entry in entries], default=0)
        for job in jobs:
            if job.entry is None or job.is_creation or job.entry.run_index is not None:
                self._put_again(queue, job)
                continue
            queue.unfinished[job] = None
            self._held.take_anyway(model.owner, job.num_bytes)
            seq_id = job.entry.seq_id
            if seq_id is None or seq_id < taken_to:  # had it run, its `run_index` would say where
                queue.order.put_late(job, seq_id, last_id + 1, time.monotonic())
            else:
                queue.order.put(job, seq_id, time.monotonic())
        self._advance(queue)

    def run_again(self, model: Model, make_jobs: MakeJobs, *, is_loss: bool = True) -> int:
        """Have another worker do what one did for a model since its last state; how many requests that are. `is_loss`:
        it ended under a request.
        """
        queue = self._queue(model)
        queue.history.num_moves += 1
        queue.is_taken = False
        queue.history.forget_published()
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
        """What has run on a model since its last state."""
        return self._queue(model).history

    def state_bytes(self, model_id: str) -> int:
        """What the last state of a model takes on the disk; 0 where there is none yet."""
        queue = self._queues.get(model_id)
        state = None if queue is None else queue.history.newest()[0]
        return 0 if state is None else state.num_bytes

    def length(self, model: Model) -> QueueLength:
        """What a model has waiting and running."""
        queue = self._queues.get(model.model_id)
        return QueueLength() if queue is None else queue.length()

    def running(self, model: Model) -> frozenset[Job]:
        """What is with the engine; nothing while it waits for memory."""
        queue = self._queues.get(model.model_id)
        is_waiting = queue is None or self.patience.words(model.model_id) is not None
        return frozenset() if queue is None or is_waiting else frozenset(queue.running)

    def _put_again(self, queue: Queue, job: Job) -> None:
        queue.unfinished[job] = None
        self._held.take_anyway(queue.model.owner, job.num_bytes)
        queue.order.put_again(job, None if job.entry is None else job.entry.seq_id)

    def _give_up_on(self, queue: Queue) -> None:
        """Fail the request that may be what ends workers: the first without a result, after so many losses."""
        for name, ran in queue.history.ran.items():
            future = self._futures.peek(name)
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
        queue.is_taken = True
        queue.running.add(taken.request)
        if taken.request.entry is not None:
            taken_to = queue.order.seen.taken_to
            queue.history.add(taken.request.entry, changes_model=taken.request.changes_model, taken_to=taken_to)
        self._begin(self._run(queue, taken, queue.history.num_moves))

    async def _run(self, queue: Queue, taken: Taken[Job], num_moves: int) -> None:
        """`num_moves`: of the model, when the request was given its turn."""
        job, has_turn = taken.request, True

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                if queue.history.num_moves == num_moves:  # else others have had their turns since
                    queue.is_taken = False
                    self._advance(queue)

        turn = Turn(
            self._pool,
            queue.model,
            patience=self.patience if job.runs_again else None,  # its client may have been told that it is done
            is_current=lambda: queue.history.num_moves == num_moves,
            on_sent=partial(self._follow, queue, job),
            end=end_turn,
        )
        try:
            await self._note_turn(queue, taken)
            result = await job.run(turn)
        except Exception as error:
            # Else it runs again already, or ended while it did, and what it needed here may be gone since.
            is_last = queue.history.num_moves == num_moves and not queue.is_over(job)
            if is_last or job.entry is None or queue.model.is_dropped:
                self._count(queue, job, turn)
                told = _told(queue.model, error)
                self._check_repeated(queue.model, job, told)
                await self._fail_job(queue, job, told)
        else:
            queue.history.count(turn.sent_at, turn.answered_at)
            self._count(queue, job, turn)
            self._finish(queue, job, result)
        finally:
            self._pending_bytes[queue.model.owner] -= job.num_bytes
            self._finish_job(queue, job)
            end_turn()

    def _count(self, queue: Queue, job: Job, turn: Turn) -> None:
        """Count what a request used, the first time that it has run."""
        if self._commit is None:
            self._meter.count(turn.spent)
        elif job.entry is not None and job.entry.request_id in queue.history.ran and not queue.model.is_dropped:
            self._meter.hold(job.entry.request_id, turn.spent)

    async def _note_turn(self, queue: Queue, taken: Taken[Job]) -> None:
        """Write down which request runs now, where a replay would not know."""
        job, history = taken.request, queue.history
        if self._commit is None or job.entry is None or taken.is_in_order or job.is_creation:
            return
        names, first_index = history.unindexed(), history.next_index
        history.next_index += len(names)
        await self._commit.keep(SetRunOrder(names, first_index))  # it has been accepted, and cannot be refused

    def _check_repeated(self, model: Model, job: Job, error: Exception) -> None:
        """Lose a model of which a request fails now that did not fail before: its weights would be others."""
        if not job.runs_again or not job.changes_model or job.entry is None or model.loss is not None:
            return
        had_result = job.future is None or (job.future.result is not None and not job.future.result.is_failure)
        if had_result or not isinstance(error, InputError):
            model.lose(f"what it did could not be done again: {message_of(error)}")

    def _follow(self, queue: Queue, job: Job, command: ModelCommand) -> None:
        """Have the state of a model saved behind a command, if that is due."""
        if self._states is not None and job.entry is not None:
            self._states.follow(queue.model, queue.history, queue.order.seen, command, job.entry.request_id)

    async def _fail_job(self, queue: Queue, job: Job, error: Exception) -> None:
        """Give a job's future the error. It is on the disk before it is told, since a replay might not fail. Where the
        store cannot be written for long it is before the next request that is accepted; where another server may take
        the model over meanwhile, it is told only then.
        """
        tell_failure(error)
        result = Result.of_error(error)
        if self._is_closed:
            return
        is_told = job.future is None or job.future.result is not None
        is_kept = queue.model.loss is None and not queue.model.is_dropped  # an ended session's answers are not
        if self._commit is not None and job.entry is not None and is_kept and not is_told:
            assert job.future is not None
            queue.history.finish(job.entry.request_id)
            self._meter.settle([job.entry.request_id])
            job.future.is_stored = True
            finish = FinishEntry(answer_of(job.future, result))
            try:
                await (self._commit.keep(finish) if self._is_shared else self._commit.commit(finish))
            except StorageError:
                if self._is_closed or self._is_shared:
                    return
                self._commit.later(finish)
        if job.future is not None:
            self._futures.finish(job.future, result)
        if job.entry is not None:  # what was to be published will not be
            queue.model.snapshots.pop(job.entry.drawn["id"], None)
            self._pool.give_up(job.entry.drawn["id"])

    def _finish(self, queue: Queue, job: Job, result: Result) -> None:
        """Give a job's future its result, if it has none yet. What has not changed the model need not run again."""
        if self._is_closed:
            return
        if job.future is not None:
            self._futures.finish(job.future, result)
        if self._commit is None or job.entry is None or job.changes_model or queue.model.is_dropped:
            return
        queue.history.finish(job.entry.request_id)
        self._meter.settle([job.entry.request_id])
        if job.future is None or job.future.result is None:
            self._commit.later(DropEntry(job.entry.request_id, job.entry.position))
        else:
            job.future.is_stored = True
            self._commit.later(FinishEntry(answer_of(job.future, job.future.result)))

    def _finish_job(self, queue: Queue, job: Job) -> None:
        """Give back what a request held."""
        owner = queue.model.owner
        queue.unfinished.pop(job, None)
        queue.running.discard(job)
        self._held.give_back(owner, job.num_bytes)
        waiting = self._held_back.pop(owner, deque())
        for held_back in waiting:
            self._advance(held_back)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _told(model: Model, error: Exception) -> Exception:
    """What to say of a request that failed: what it needs may have gone with its session, or with its model."""
    if model.is_dropped or isinstance(error, CanceledError):
        return InputError(f"session {model.session_id} has ended")
    return LostError(model.loss or str(error)) if isinstance(error, LostError) else error


async def _not_run(_turn: Turn) -> Result:
    raise AssertionError("a request that was given up on has run")
