"""The training loop: the only one. Algorithms differ in its source, objective and evaluation, never here.

    source ──work──► submit ──requests──► service        submit never waits
                       │                     │
                   in flight (lookahead + 1 at most)
                       │                     │
                       └──────► finish ◄──answers        in order: metrics, then the checkpoint that follows the step

Work i + 1 is submitted before work i is finished, unless the source says that it needs the answers first. A step is
one piece of work or several; its metrics are reported once, when the last of them is answered. What must see the
weights after n steps is requested between the submissions of steps n - 1 and n: the service runs a model's requests in
the order they come.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from cookhouse.errors import BadRowsError
from cookhouse.telemetry import Telemetry, Values, after_step, events, keys, step_number
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.clients.session import service_errors
from cookhouse.training.clients.waiting import Waiting
from cookhouse.training.interrupt import Interrupt
from cookhouse.training.loop.best import BestWeights
from cookhouse.training.loop.cadence import Cadence
from cookhouse.training.loop.clock import StepClock
from cookhouse.training.loop.flight import Answers, InFlight, OpenStep
from cookhouse.training.loop.rolling import RollingSaves
from cookhouse.training.loop.saving import PendingCheckpoint
from cookhouse.training.loop.slots import FinishedStep, LoopOutcome, LoopSlots, ScheduledEvaluation, SlotNames
from cookhouse.training.work import Work
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile

_T = TypeVar("_T")
P = TypeVar("P")

_EVALUATING = "evaluating the weights"


class TrainingLoop(Generic[P]):
    """Drives work from a source through the service until there is no more, or until interrupted. Runs once."""

    def __init__(
        self,
        *,
        client: TrainingClient,
        slots: LoopSlots[P],
        save_every: int,
        rolling: RollingSaves | None = None,
        best: BestWeights | None = None,
        total_steps: int,
        pause_at: int | None = None,
        checkpoints: CheckpointFile,
        telemetry: Telemetry,
        interrupt: Interrupt,
        names: SlotNames | None = None,
        lookahead: int = 1,
        patience_seconds: float = 10.0,
    ) -> None:
        """`pause_at`: after so many steps of the `total_steps` it saves, measures, and takes no further one."""
        self._client = client
        self._slots = slots
        self._saves = Cadence(every=save_every)
        self._rolling = rolling
        self._best = best
        self._total_steps = total_steps
        self._pause_at = pause_at
        self._checkpoints = checkpoints
        self._telemetry = telemetry
        self._interrupt = interrupt
        self._names = names or SlotNames()
        self._lookahead = lookahead
        self._waiting = Waiting(telemetry, patience_seconds)
        self._in_flight: deque[InFlight[P]] = deque()
        self._evaluations: list[asyncio.Task[Values]] = []  # every one ever started: a run has few
        self._cursor = slots.get_work.cursor  # the step of the next work not yet submitted
        self._submitted: list[Work[P]] = []  # of the step that is not all submitted
        self._is_within_step = False  # of the last work submitted: whether more of its step is to come
        self._has_gradient = False  # of work submitted since the last update
        self._is_paused = False
        self._has_half_updated = False  # whether the weights now are those of no step's end
        self._open_step: OpenStep[P] | None = None
        self._clock = StepClock()
        self._metrics: Mapping[str, Any] = {}
        self._saved: Checkpoint | None = None

    async def run(self) -> LoopOutcome:
        """Train. Leaves no task behind, however it ends.

        Raises:
            InputError: the service refused something of the caller's, or a file cannot be written.
            ServiceError: the service failed.
            Exception: whatever a slot raised. A note on any of these names the slot and the step.
        """
        is_broken = True
        try:
            with self._interrupt.deferred():
                try:
                    await self._train()
                except BadRowsError as error:
                    await self._stop_before(error)
                    raise
                if self._interrupt.is_requested:
                    await self._save_here()
                elif self._must_pause:
                    await self._pause()
            is_broken = False
        finally:
            await self._abandon()
            if self._rolling is not None:
                await self._rolling.aclose(is_broken=is_broken)
            await self._slots.get_work.aclose()
        return LoopOutcome(
            cursor=self._cursor,
            is_interrupted=self._interrupt.is_requested,
            is_paused=self._is_paused,
            metrics=self._metrics,
            checkpoint=self._saved,
        )

    async def _train(self) -> None:
        self._publish()
        while not (self._must_stop or self._must_end or self._must_pause):
            if self._slots.get_work.needs_answers:
                await self._finish(down_to=0)
            if self._must_stop or (work := await self._get_work()) is None or self._must_stop:
                break
            evaluations = [] if self._is_within_step else await self._begin_evaluations(work.cursor.step)
            if self._best is not None and evaluations:
                await self._keep_best(self._best, work.cursor.step, evaluations)
                if self._must_end:
                    break
            self._in_flight.append(self._submit(work, evaluations))
            await self._finish(down_to=self._lookahead)
        await self._finish(down_to=0)

    @property
    def _must_stop(self) -> bool:
        # A step of several updates is brought to its end: no run could resume from the weights between two of them.
        return self._interrupt.is_requested and not self._has_half_updated

    @property
    def _must_end(self) -> bool:
        return self._best is not None and self._best.is_over

    @property
    def _must_pause(self) -> bool:
        is_there = self._pause_at is not None and self._pause_at <= self._cursor.step < self._total_steps
        return is_there and not self._is_within_step

    async def _get_work(self) -> Work[P] | None:
        """The next piece; None if there is no more, or if the run is interrupted while it is being made."""
        name, step = self._names.get_work, self._cursor.step
        what = self._doing(name, step)
        with _noted(what), self._telemetry.span(name, step=step):
            making = asyncio.create_task(self._next_work(what), name=name)
            stopping = asyncio.create_task(self._interrupt.requested(), name="interrupt")
            try:
                awaited = {making} if self._has_half_updated else {making, stopping}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                return making.result() if making.done() else None
            finally:
                making.cancel()
                stopping.cancel()
                await asyncio.gather(making, stopping, return_exceptions=True)

    async def _next_work(self, what: str) -> Work[P] | None:
        source = self._slots.get_work
        step = self._cursor.step
        return await self._waiting.wait(source.next_work(), what, step=step, progress=lambda: source.progress)

    async def _begin_evaluations(self, step: int) -> list[asyncio.Task[Values]]:
        due = [scheduled for scheduled in self._slots.evaluate if scheduled.cadence.is_due(step)]
        if not due:
            return []
        self._read_ahead()
        with self._clock.held():
            return [await self._begin_evaluation(scheduled, step) for scheduled in due]

    async def _begin_evaluation(self, scheduled: ScheduledEvaluation, step: int) -> asyncio.Task[Values]:
        self._telemetry.event(events.STAGE_START, step=step, stage=self._names.evaluate, doing=_EVALUATING)
        name = f"{self._names.evaluate} ({scheduled.name}) {after_step(step)}"
        with _noted(self._doing(self._names.evaluate, step)), service_errors(name):
            finish = await self._waiting.wait(scheduled.evaluation.begin(self._client, step), name, step=step)
        self._evaluations.append(asyncio.create_task(finish, name=name))
        return self._evaluations[-1]

    async def _keep_best(self, best: BestWeights, step: int, evaluations: Sequence[asyncio.Task[Values]]) -> None:
        """Wait for what was measured of the weights while they are still these, and save them if none were better."""
        name = self._doing(self._names.evaluate, step)
        with self._clock.held():
            await self._finish(down_to=0)  # what is saved is resumed from: the rows before it are there by then
            with _noted(name), service_errors(name):
                found = await self._waiting.wait(asyncio.gather(*evaluations), name, step=step)
                is_best = best.see(step, {key: value for values in found for key, value in values.items()})
            if is_best:
                await self._record(best.submit(self._client, self._cursor))
                await best.drop_others()
        if best.is_over:
            self._telemetry.event(events.TRAINING_STOPPED, step=step, text=best.reason)

    def _submit(self, work: Work[P], evaluations: Sequence[asyncio.Task[Values]]) -> InFlight[P]:
        adam = self._slots.optim_step.params(work.cursor.step)
        submitted = self._clock.submit(work.ready_seconds)
        with _noted(self._doing(self._names.forward_backward, work.cursor.step)):
            forward_backward = self._slots.forward_backward.loss.submit(self._client, work) if work.data_D else None
        self._has_gradient = self._has_gradient or forward_backward is not None
        # Without a gradient Adam would still move the weights, by its moments and the weight decay.
        is_update = work.closes_update and self._has_gradient
        optim_step = self._client.optim_step(adam) if is_update else None
        self._has_gradient = self._has_gradient and not is_update
        look_back = self._look_back(work)
        self._cursor = self._slots.get_work.cursor
        self._is_within_step = not work.closes_step
        self._has_half_updated = self._is_within_step and (is_update or self._has_half_updated)
        if work.closes_step:
            self._publish()
        return InFlight(
            work=work,
            learning_rate=adam.learning_rate,
            submitted=submitted,
            forward_backward=forward_backward,
            optim_step=optim_step,
            look_back=look_back,
            evaluations=evaluations,
            checkpoint=self._save() if work.closes_step else None,
        )

    def _save(self) -> PendingCheckpoint | None:
        """Request the save that is due, if one is; what follows the last step has one of its own."""
        step = self._cursor.step
        if step >= self._total_steps:
            return None
        if self._saves.is_due(step):
            return self._slots.checkpoint(self._client, self._cursor)
        if self._rolling is not None and self._rolling.is_due(step):
            return self._rolling.submit(self._client, self._cursor)
        return None

    def _look_back(self, work: Work[P]) -> Awaitable[Mapping[str, float]] | None:
        if self._slots.look_back is None:
            return None
        self._submitted.append(work)
        if not work.closes_step:
            return None
        works, self._submitted = self._submitted, []
        return self._slots.look_back(self._client, works)

    def _publish(self) -> None:
        if self._slots.publish is not None and self._cursor.step < self._total_steps:
            self._slots.publish(self._client, self._cursor.step)

    async def _finish(self, *, down_to: int) -> None:
        """Read answers, oldest first, until no more than `down_to` pieces are in flight."""
        while len(self._in_flight) > down_to:
            await self._finish_oldest()

    async def _finish_oldest(self) -> None:
        flight = self._in_flight.popleft()
        work = flight.work
        if self._open_step is None:
            self._open_step = OpenStep(first=flight)
        answered = self._open_step
        answered.reports.append(work.metrics)
        answers = await self._begin_reading(flight)
        if answers.forward_backward is not None:
            answered.parts.append((work, answers.forward_backward))
        if answers.optim_step is not None:
            answered.updates.append(answers.optim_step.metrics or {})
        answered.looked_back |= answers.looked_back
        if work.closes_step:
            self._open_step = None
            await self._finish_step(answered, flight, answers.at_seconds)
        if flight.checkpoint is not None:
            await self._record(flight.checkpoint)

    async def _finish_step(self, answered: OpenStep[P], last: InFlight[P], answered_at: float) -> None:
        first, step = answered.first, last.work.cursor.step
        seconds = self._clock.step_seconds(first.submitted, answered_at)
        measured: dict[str, float | str] = {}
        if first.evaluations:
            self._read_ahead()
            with self._clock.held():
                for evaluation in first.evaluations:
                    measured |= await self._answer(evaluation, self._names.evaluate, step, first.submitted.at)
        self._log(answered, last, measured, seconds)

    def _read_ahead(self) -> None:
        """Read what is in flight while an evaluation is waited for: else nobody knows when its answers came."""
        for flight in self._in_flight:
            self._begin_reading(flight)

    def _begin_reading(self, flight: InFlight[P]) -> asyncio.Task[Answers]:
        if flight.reading is None:
            name = f"answers of step {step_number(flight.work.cursor.step)}"
            flight.reading = asyncio.create_task(self._read(flight), name=name)
        return flight.reading

    async def _read(self, flight: InFlight[P]) -> Answers:
        names, step, start = self._names, flight.work.cursor.step, flight.submitted.at
        output = optim = None
        looked_back: Mapping[str, float] = {}
        if flight.forward_backward is not None:
            output = await self._answer(flight.forward_backward, names.forward_backward, step, start)
        if flight.optim_step is not None:
            optim = await self._answer(flight.optim_step, names.optim_step, step, start)
        if flight.look_back is not None:
            looked_back = await self._answer(flight.look_back, names.look_back, step, start)
        return Answers(
            forward_backward=output, optim_step=optim, looked_back=looked_back, at_seconds=time.perf_counter()
        )

    def _log(self, answered: OpenStep[P], last: InFlight[P], measured: Values, seconds: float) -> None:
        cursor = last.work.cursor
        with _noted(self._doing(self._names.forward_backward, cursor.step)):
            found = self._slots.forward_backward.metrics(answered.parts)
        tokens = sum(datum.model_input.length for work, _ in answered.parts for datum in work.data_D)
        metrics = {
            **_means(answered.reports),
            keys.TRAIN_TOKENS: float(tokens),
            **found,
            keys.LEARNING_RATE: last.learning_rate,
            **{f"optim/{name}": value for name, value in _means(answered.updates).items()},
            **answered.looked_back,
            **measured,
        }
        self._metrics = metrics
        what = self._doing(self._names.log, cursor.step)
        with _noted(what), self._telemetry.span(self._names.log, step=cursor.step):
            self._slots.log(
                FinishedStep(cursor=cursor, metrics=metrics, seconds=seconds, held_seconds=self._clock.held_seconds)
            )
        if self._slots.keep is not None:
            with _noted(self._doing(self._names.keep, cursor.step)):
                self._slots.keep(cursor.step, answered.parts)

    async def _answer(self, request: Awaitable[_T], name: str, step: int, start_seconds: float) -> _T:
        what = self._doing(name, step)
        with _noted(what), service_errors(what):
            answer = await self._waiting.wait(request, what, step=step)
        self._telemetry.finish_span(name, start_seconds, step=step)
        return answer

    def _doing(self, slot: str, step: int) -> str:
        """Name of what fills a slot, with its step, for people."""
        is_between = slot in (self._names.evaluate, self._names.checkpoint)
        return f"{slot} {after_step(step)}" if is_between else f"{slot} of step {step_number(step):,}"

    async def _record(self, pending: PendingCheckpoint) -> None:
        start = time.perf_counter()
        self._saved = await self._answer(pending.finish(), self._names.checkpoint, pending.cursor.step, start)
        self._checkpoints.append(self._saved)
        if self._rolling is not None:
            self._rolling.recorded(self._saved)
        if not self._saved.rolling:
            self._telemetry.event(events.TRAINING_CHECKPOINT, step=self._saved.step, checkpoint=self._saved.name)

    async def _stop_before(self, error: BadRowsError) -> None:
        """Finish and save what was submitted before the batch whose rows cannot be used."""
        await self._finish(down_to=0)
        if not self._has_half_updated:
            await self._save_here()
        if self._saved is not None:
            done = f"the {self._cursor.step:,} steps before are done and saved"
            error.add_note(f"{done}; on_bad_row=skip goes on without such rows")

    async def _save_here(self) -> None:
        is_saved = self._saved is not None and self._saved.cursor == self._cursor and not self._saved.rolling
        if not is_saved and self._metrics:
            await self._record(self._slots.checkpoint(self._client, self._cursor))

    async def _pause(self) -> None:
        """Save, and measure by every evaluation, as of weights after their last step."""
        await self._save_here()
        step = self._cursor.step
        measured: dict[str, float | str] = {}
        for scheduled in self._slots.evaluate:
            start = time.perf_counter()
            evaluation = await self._begin_evaluation(scheduled, step)
            measured |= await self._answer(evaluation, self._names.evaluate, step, start)
        if measured:
            self._telemetry.metrics(step, measured)
        self._is_paused = True
        text = f"paused after step {step:,} of {self._total_steps:,} (pause_at_step)"
        self._telemetry.event(events.TRAINING_STOPPED, step=step, text=text)

    async def _abandon(self) -> None:
        tasks = [*self._evaluations, *(flight.reading for flight in self._in_flight if flight.reading is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _noted(what: str) -> Iterator[None]:
    """Puts on what escapes from the body where it came from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in stage {what}")
        raise


def _means(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric, a mean over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    found = {name: [report[name] for report in reports if name in report] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}
