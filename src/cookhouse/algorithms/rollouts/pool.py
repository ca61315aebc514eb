"""Groups of rollouts under way: how far ahead of training they may be, and which of them a step may be trained on.

    planned ──weights new enough──► running ──► finished ──take──► a step
       ▲                               │            │
       └────────── too old for the step to come ────┘

One budget decides: with `max_steps_off_policy` k, groups planned for step t may start once the weights of step t - k
are published, and step t takes no group sampled from weights older than that. With k = 0 every step is trained on its
own groups, from its own weights, taken in the order of the data; with k > 0 on those that finish first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.rollout_log import GroupId, RolloutLog
from cookhouse.rl import (
    EnvGroupBuilder,
    GroupAdvantages,
    GroupFailedError,
    GroupSampler,
    RLDataset,
    TrajectoryGroup,
)
from cookhouse.settings.rollouts import PoolSettings

Rollout = Callable[[EnvGroupBuilder, GroupSampler, int], Awaitable[TrajectoryGroup]]
"""Samples one group with a seed; raises `GroupFailedError` where too little of it came out."""


@dataclass(frozen=True, kw_only=True)
class FinishedGroup:
    """A group that is over; one that failed has an error in place of trajectories."""

    id: GroupId
    group: TrajectoryGroup | None
    error: GroupFailedError | None = None
    advantages: GroupAdvantages | None = None
    """What it is trained with; None before that is known, and if it is left out."""
    ready_seconds: float = field(default_factory=time.perf_counter, compare=False)
    """When it was over, of `time.perf_counter`."""


@dataclass(kw_only=True)
class _Planned:
    builder: EnvGroupBuilder
    attempt: int = 0
    task: asyncio.Task[TrajectoryGroup] | None = None
    version: int = 0
    """Of the weights it is sampled from, once it runs."""
    finished: FinishedGroup | None = None


@dataclass(kw_only=True)
class RolloutPool:
    """Runs groups of a data set, epoch after epoch. Used by one task, and closed at the end.

    Whenever a group finishes or weights are published, what may start starts, also while nobody takes anything.
    """

    dataset: RLDataset
    rollout: Rollout
    policy: Policy
    log: RolloutLog
    seed: int
    total_steps: int
    settings: PoolSettings
    first_step: int = 0
    num_resampled: int = field(init=False, default=0)
    """Groups so far that became too old and were started again."""

    def __post_init__(self) -> None:
        self._woken = asyncio.Event()
        self._is_waited_for = self._is_closed = False
        self._due_step = self.first_step
        self._error: BaseException | None = None
        self._planned: dict[GroupId, _Planned] = {}
        self._tasks: set[asyncio.Task[TrajectoryGroup]] = set()
        restored = self.log.restore(self.first_step)
        self._next_step = restored.next_step
        self._restored = dict(restored.finished)
        self._num_drawn = 0
        counts = {step: number + 1 for step, number in sorted(restored.left)}
        builders = {step: self._builders(step, count) for step, count in counts.items()}
        for group_id in restored.left:
            self._plan(group_id, builders[group_id.step][group_id.number])
        self.policy.on_change(self._wake)

    def num_groups(self, step: int) -> int:
        """Groups in the batch of a step."""
        return len(self._batch(step))

    @property
    def num_ready(self) -> int:
        """Groups that are over and wait to be taken."""
        return sum(planned.finished is not None for planned in self._planned.values())

    async def take(self, step: int, count: int) -> list[FinishedGroup]:
        """Wait for `count` groups that the step may be trained on, and hand them over, in the order of the data.

        Raises:
            GroupFailedError: a group failed, and that ends the run.
            InputError, ServiceError: weights could not be published, or a rollout could not be kept.
        """
        self._due_step = step
        while True:
            self._woken.clear()
            if self._error is not None:
                raise self._error
            self._advance(step)
            taken = self._takeable(count)
            if len(taken) == count:
                for finished in taken:
                    del self._planned[finished.id]
                return taken
            self._is_waited_for = True
            try:
                await self._woken.wait()
            finally:
                self._is_waited_for = False

    def draw(self, step: int, count: int) -> int:
        """Plan further groups for the step that is due, besides those of its batch; how many the data gave."""
        start = self.num_groups(step) + self._num_drawn
        builders = self._builders(step, start + count)[start:]
        for number, builder in enumerate(builders, start):
            self._plan(GroupId(step, number), builder)
        self._num_drawn += len(builders)
        return len(builders)

    def _takeable(self, count: int) -> list[FinishedGroup]:
        """At most `count` groups that may be taken now, in the order of the data."""
        planned_in_order = list(self._planned.values())
        if self.settings.max_steps_off_policy == 0:
            planned_in_order = planned_in_order[:count]  # not those that are ready first: a run repeats to the bit
        finished = [planned.finished for planned in planned_in_order if planned.finished is not None]
        return finished[:count]

    def close_step(self, step: int, used: Sequence[FinishedGroup]) -> None:
        """Record that a step has all its groups, and what each is trained with; the next one is due."""
        self._due_step, self._num_drawn = step + 1, 0
        advantages = {finished.id: finished.advantages for finished in used if finished.advantages is not None}
        self.log.keep_advantages(step, advantages)
        self.log.close_step(step, [finished.id for finished in used], sorted(self._planned), self._next_step)

    async def aclose(self) -> None:
        """Stop every rollout, and wait until it has stopped."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wake(self) -> None:
        """Something has changed. Whoever waits in `take` goes on from here; else it is done in their place."""
        self._woken.set()
        if self._is_waited_for or self._is_closed or self._error is not None:
            return
        try:
            self._advance(self._due_step)
        except Exception as error:  # of the data set or of a publication: for whoever takes next
            self._error = error

    def _advance(self, step: int) -> None:
        """Plan what the budget allows, begin again what is too old for the step, and start what may start."""
        while self._next_step <= min(step + self.settings.max_steps_off_policy, self.total_steps - 1):
            self._plan_step()
        oldest = step - self.settings.max_steps_off_policy
        for group_id, planned in self._planned.items():
            has_begun = planned.task is not None or planned.finished is not None
            if has_begun and planned.version < oldest and not _has_failed(planned):
                self._begin_again(group_id, planned)
        sampler = self.policy.current
        if sampler is None:
            return
        num_running = sum(planned.task is not None for planned in self._planned.values())
        for group_id, planned in self._planned.items():
            if num_running == self.settings.max_concurrent_groups:
                break
            is_waiting = planned.task is None and planned.finished is None
            if is_waiting and sampler.version >= max(step, group_id.step) - self.settings.max_steps_off_policy:
                self._start(group_id, planned, sampler)
                num_running += 1

    def _plan_step(self) -> None:
        for number, builder in enumerate(self._batch(self._next_step)):
            self._plan(GroupId(self._next_step, number), builder)
        self._next_step += 1

    def _batch(self, step: int) -> Sequence[EnvGroupBuilder]:
        return self.dataset.get_batch(step)

    def _builders(self, step: int, count: int) -> list[EnvGroupBuilder]:
        """The first groups of a step: those of its batch, then further ones, of batches that come after the run's last
        step, each of which belongs to one step. So they are the same whatever was drawn before.
        """
        index, found = step, list(self._batch(step))
        while len(found) < count:
            index += self.total_steps
            more = self._batch(index)
            if not more:
                break
            found += more
        return found[:count]

    def _plan(self, group_id: GroupId, builder: EnvGroupBuilder) -> None:
        planned = self._planned[group_id] = _Planned(builder=builder)
        group = self._restored.pop(group_id, None)
        if group is not None:
            planned.version = group.version
            planned.finished = FinishedGroup(id=group_id, group=group)

    def _start(self, group_id: GroupId, planned: _Planned, sampler: GroupSampler) -> None:
        seed = int(np.random.SeedSequence((self.seed, *group_id, planned.attempt)).generate_state(1)[0])
        name = f"rollout {group_id.step}/{group_id.number}"
        planned.version = sampler.version
        planned.task = asyncio.create_task(self._roll_out(planned.builder, sampler, seed), name=name)
        self._tasks.add(planned.task)
        planned.task.add_done_callback(lambda task: self._finish(group_id, planned, task))

    async def _roll_out(self, builder: EnvGroupBuilder, sampler: GroupSampler, seed: int) -> TrajectoryGroup:
        return await self.rollout(builder, sampler, seed)

    def _begin_again(self, group_id: GroupId, planned: _Planned) -> None:
        if planned.task is not None:
            planned.task.cancel()
        attempt = planned.attempt + 1
        self._planned[group_id] = _Planned(builder=planned.builder, attempt=attempt)
        self.num_resampled += 1

    def _finish(self, group_id: GroupId, planned: _Planned, task: asyncio.Task[TrajectoryGroup]) -> None:
        planned.task = None
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or self._planned.get(group_id) is not planned:
            return
        try:
            if error is None:
                planned.finished = FinishedGroup(id=group_id, group=task.result())
                self.log.keep(group_id, task.result())
            elif isinstance(error, GroupFailedError) and self.settings.on_failed_group == "skip":
                planned.finished = FinishedGroup(id=group_id, group=None, error=error)
            else:
                self._error = self._error or error
        except Exception as failure:
            self._error = self._error or failure
        self._wake()


def _has_failed(planned: _Planned) -> bool:
    return planned.finished is not None and planned.finished.group is None
