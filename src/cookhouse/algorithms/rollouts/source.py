"""Rollouts as a source of work: synchronous, streamed in minibatches, or ahead of training by a bounded lag."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, islice, pairwise

import tinker

from cookhouse.algorithms.rollouts.assembler import RolloutPayload
from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.pool import FinishedGroup, RolloutPool
from cookhouse.algorithms.rollouts.refill import Refill
from cookhouse.errors import InputError
from cookhouse.rl import TrajectoryGroup
from cookhouse.rl.learning.batch import reduced
from cookhouse.settings import UpdateSettings
from cookhouse.telemetry import keys
from cookhouse.training.work import Assembler, Work
from cookhouse.weights.checkpoints import Cursor

Measure = Callable[[int, Sequence[FinishedGroup]], Mapping[str, float]]
"""Metrics of all groups of a step, called once when they are complete."""


def split_step(settings: UpdateSettings, num_groups: int) -> list[tuple[int, bool]]:
    """Groups in each piece of a step, and whether an optimizer step follows it."""
    pieces: list[tuple[int, bool]] = []
    for update_groups in _parts(num_groups, settings.num_substeps):
        sizes = _parts(update_groups, settings.num_minibatches)
        pieces += [(size, index == len(sizes) - 1) for index, size in enumerate(sizes)]
    return pieces


def _parts(count: int, num_parts: int) -> list[int]:
    """`count` in parts as equal as can be; fewer parts where there is too little."""
    edges = [count * part // num_parts for part in range(num_parts + 1)]
    return [end - start for start, end in pairwise(edges) if end > start]


def _update_of(pieces: Sequence[tuple[int, bool]], index: int) -> slice:
    """The groups of the optimizer step that a piece is part of."""
    edges = [0, *accumulate(size for size, _ in pieces)]
    first = max((at + 1 for at in range(index) if pieces[at][1]), default=0)
    last = next(at for at in range(index, len(pieces)) if pieces[at][1])
    return slice(edges[first], edges[last + 1])


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A group of a step with the datums that train on it."""

    group: FinishedGroup
    data_D: Sequence[tinker.Datum] = ()
    num_datums_G: Sequence[int] = ()
    """Of each rollout."""


def _data(made: Sequence[_Made]) -> list[tinker.Datum]:
    return [datum for each in made for datum in each.data_D]


@dataclass(kw_only=True)
class RolloutSource:
    """Turns groups of a pool into work, `total_steps` steps in all. Closes the pool and the policy with itself."""

    pool: RolloutPool
    policy: Policy
    assemble: Assembler[Sequence[TrajectoryGroup], RolloutPayload]
    """Of some groups of a step, or all of them; never of none."""
    measure: Measure
    settings: UpdateSettings
    batches_per_epoch: int
    total_steps: int
    needs_whole_steps: bool = False
    """Whether `assemble` has to have all groups of a step at once, as for a mean over them."""
    refill: Refill | None = None
    """Replaces groups of a step; None: they are as they are."""
    start: Cursor = field(default_factory=Cursor)

    def __post_init__(self) -> None:
        self._cursor = self.start
        self._is_within_step = False
        self._works: AsyncGenerator[Work[RolloutPayload]] | None = None
        self._num_groups = self._num_taken = 0  # of the step in the making
        self._waited_seconds = 0.0

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def needs_answers(self) -> bool:
        """At the start of every step: rollouts may take minutes, and a save or a metric should not wait for them."""
        return not self._is_within_step

    @property
    def progress(self) -> str:
        num_done = min(self._num_taken + self.pool.num_ready, self._num_groups)
        return f"{num_done} of {self._num_groups} groups are done"

    async def next_work(self) -> Work[RolloutPayload] | None:
        if self._works is None:
            self._works = self._produce()
        return await anext(self._works, None)

    async def aclose(self) -> None:
        if self._works is not None:
            await self._works.aclose()
        await self.pool.aclose()
        await self.policy.aclose()

    async def _produce(self) -> AsyncGenerator[Work[RolloutPayload]]:
        while self._cursor.step < self.total_steps:
            async with aclosing(self._step(self._cursor)) as works:
                async for work in works:
                    self._is_within_step = not work.closes_step
                    if work.closes_step:
                        self._cursor = self._after(work.cursor)
                    yield work

    async def _step(self, cursor: Cursor) -> AsyncGenerator[Work[RolloutPayload]]:
        self._num_groups, self._num_taken = self.pool.num_groups(cursor.step), 0
        self._waited_seconds = 0.0
        pieces = split_step(self.settings, self._num_groups)
        groups: list[FinishedGroup] = []
        replaced: list[FinishedGroup] = []
        made: list[_Made] = []
        works: list[Work[RolloutPayload]] = []
        for index, (size, ends_update) in enumerate(pieces):
            is_last = index == len(pieces) - 1
            metrics: dict[str, float] = {}
            if self._num_taken < self._num_groups:
                count = size if self._streams else self._num_groups
                taken = await self._take(cursor.step, count)
                if self.refill is not None:
                    taken, replaced = await self.refill(cursor.step, taken, partial(self._draw, cursor.step))
                    metrics[keys.REPLACED_SHARE] = len(replaced) / self._num_groups
                groups += taken
                if self._num_taken == self._num_groups:
                    _refuse_failed(groups)
                new, found = await self._make(taken)
                made += new
                metrics |= found
            start = sum(size for size, _ in pieces[:index])
            piece = made[start : start + size]
            if is_last:
                sampled = sorted([*(each.group for each in made), *replaced], key=lambda each: each.id)
                self.pool.close_step(cursor.step, sampled)
                metrics |= {**self.measure(cursor.step, sampled), keys.ROLLOUT_WAIT_SECONDS: self._waited_seconds}
            update_D = _data(made[_update_of(pieces, index)])
            sizes_P = [each.num_datums_G for each in piece]
            work = Work(
                cursor=cursor,
                data_D=reduced(_data(piece), self.settings.reduction, update_D, list(chain.from_iterable(sizes_P))),
                payload=RolloutPayload(
                    advantages_P=[each.group.advantages for each in piece],
                    num_datums_P=[len(each.data_D) for each in piece],
                    num_datums_P_G=sizes_P,
                    groups_P=[each.group for each in piece],
                ),
                closes_update=ends_update,
                closes_step=is_last and self.settings.ppo_epochs == 1,
                metrics=metrics,
                ready_seconds=max(group.ready_seconds for group in groups),
            )
            works.append(work)
            yield work
        for epoch in range(1, self.settings.ppo_epochs):
            for index, work in enumerate(works):
                is_end = epoch == self.settings.ppo_epochs - 1 and index == len(works) - 1
                yield replace(work, closes_step=is_end, metrics={})

    @property
    def _streams(self) -> bool:
        """True if a piece is made before all groups of its step are there."""
        needs_all = self.needs_whole_steps or self.refill is not None or self.settings.reduction == "token_mean"
        return self.settings.num_minibatches > 1 and not needs_all

    async def _take(self, step: int, count: int) -> list[FinishedGroup]:
        start = time.perf_counter()
        groups = await self.pool.take(step, count)
        self._waited_seconds += time.perf_counter() - start
        self._num_taken += count
        return groups

    async def _draw(self, step: int, count: int) -> list[FinishedGroup]:
        num_drawn = self.pool.draw(step, count)
        self._num_groups += num_drawn
        return await self._take(step, num_drawn)

    async def _make(self, groups: Sequence[FinishedGroup]) -> tuple[list[_Made], Mapping[str, float]]:
        """Inputs with which some groups are trained; of those that failed nothing: the step goes without them."""
        whole = [finished.group for finished in groups if finished.group is not None]
        if not whole:
            return [_Made(group=finished) for finished in groups], {}
        batch = await self.assemble(whole)
        payload, data = batch.payload, iter(batch.data_D)
        if len(payload.num_datums_P) != len(whole) or sum(payload.num_datums_P) != len(batch.data_D):
            raise InputError(
                f"num_datums_P is {list(payload.num_datums_P)} of {len(whole)} groups with {len(batch.data_D)} datums; "
                "give how many each has"
            )
        sizes_P = payload.num_datums_P_G or [[1] * count for count in payload.num_datums_P]
        if [*map(sum, sizes_P)] != [*payload.num_datums_P]:
            raise InputError(
                f"num_datums_P_G is {sizes_P}; give for each group numbers whose sum is its own of num_datums_P, "
                f"which is {list(payload.num_datums_P)}"
            )
        shares = zip(payload.advantages_P or [None] * len(whole), sizes_P, strict=True)
        made = []
        for finished in groups:
            if finished.group is None:
                made.append(_Made(group=finished))
                continue
            advantages, sizes_G = next(shares)
            own_D = list(islice(data, sum(sizes_G)))
            made.append(_Made(group=replace(finished, advantages=advantages), data_D=own_D, num_datums_G=[*sizes_G]))
        return made, batch.metrics

    def _after(self, cursor: Cursor) -> Cursor:
        is_last = cursor.batch + 1 == self.batches_per_epoch
        return Cursor(epoch=cursor.epoch + is_last, batch=0 if is_last else cursor.batch + 1, step=cursor.step + 1)


def _refuse_failed(groups: Sequence[FinishedGroup]) -> None:
    """Raises `InputError` if no group of a step is left."""
    errors = [finished.error for finished in groups if finished.error is not None]
    if len(errors) == len(groups):
        raise InputError(
            f"all {len(groups)} groups of rollouts that were to be trained on failed; the first: {errors[0]}"
        ) from errors[0]
