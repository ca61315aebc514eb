"""Group rollouts: the members of a group play their episodes at once, from one version of the weights.

    make_envs ─► initial observations ─► cohorts of equal prompts, one request each ─► episodes ─► group rewards
        ▲                  │ failed                  │ failed                             │ failed
        └──────────────────┴── next attempt, if any ◄┴────────────────────────────────────┘

Every task belongs to one task group, so that whatever ends a group leaves none behind.

Legend: G members.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import tinker

from cookhouse.errors import InputError
from cookhouse.rl.env import Env, EnvGroupBuilder, Metrics, StopCondition
from cookhouse.rl.episode import AttemptFailedError, attributed_to, finite, first_tokens_left, play, sample_actions
from cookhouse.rl.failures import FAIL_FAST, GroupFailedError, RolloutStrategy
from cookhouse.rl.limits import NO_LIMITS, RolloutLimits
from cookhouse.rl.sampler import GroupSampler, TokensWithLogprobs
from cookhouse.rl.seeds import derive_seed
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)

_WHOLE_GROUP = -1


@runtime_checkable
class Closable(Protocol):
    """An environment that holds something; closed once the group is rewarded, failed or cancelled."""

    async def close(self) -> None: ...


async def do_group_rollout(
    builder: EnvGroupBuilder,
    sampler: GroupSampler,
    *,
    seed: int,
    limits: RolloutLimits = NO_LIMITS,
    strategy: RolloutStrategy = FAIL_FAST,
) -> TrajectoryGroup:
    """Play a group. The same seed gives the same group, whatever finishes first, unless an attempt failed by chance.

    Members whose first prompt and stop condition are equal are sampled in one request; later turns go one by one. The
    trajectories are in the order of their members.

    Raises:
        GroupFailedError: more members failed than the strategy allows, or the group as a whole did.
    """
    rollout = _GroupRollout(builder, sampler, seed, limits, strategy)
    try:
        return await rollout.run()
    finally:
        await rollout.close()


@dataclass(frozen=True, slots=True)
class _Start:
    """A member that is ready to sample its first action."""

    member: int
    env: Env
    observation: tinker.ModelInput
    stop: StopCondition
    max_tokens: int | None


class _GroupRollout:
    """State of one group; used once. `_open` holds what was made and not closed yet, with its member and attempt."""

    def __init__(
        self,
        builder: EnvGroupBuilder,
        sampler: GroupSampler,
        seed: int,
        limits: RolloutLimits,
        strategy: RolloutStrategy,
    ) -> None:
        self._builder = builder
        self._sampler = sampler
        self._version = sampler.version
        self._seed = seed
        self._limits = limits
        self._strategy = strategy
        self._tasks = asyncio.TaskGroup()
        self._open: list[tuple[int, int, Closable]] = []
        self._failures: list[RolloutFailure] = []
        self._finished: dict[int, tuple[Env, Trajectory]] = {}
        self._size = 0
        self._started_seconds = 0.0

    async def run(self) -> TrajectoryGroup:
        try:
            envs_G = await self._make_envs(0)
        except AttemptFailedError as error:
            raise self._group_failed(error) from error.__cause__
        self._size = len(envs_G)
        try:
            async with self._tasks:
                await self._attempt(list(enumerate(envs_G)), 0)
        except ExceptionGroup as errors:
            first = _first_of(errors)
            raise first from first.__cause__
        members = sorted(self._finished)
        envs_G = [self._finished[member][0] for member in members]
        trajectories_G = [self._finished[member][1] for member in members]
        rewards_G = await self._group_rewards(trajectories_G, envs_G)
        seconds = time.perf_counter() - self._started_seconds
        await self.close()
        return TrajectoryGroup(
            trajectories_G=trajectories_G,
            group_rewards_G=[reward for reward, _ in rewards_G],
            group_metrics_G=[metrics for _, metrics in rewards_G],
            tags=list(self._builder.logging_tags()),
            version=self._version,
            failures=tuple(sorted(self._failures, key=lambda failure: (failure.member, failure.attempt))),
            seconds=seconds,
        )

    async def close(self) -> None:
        """Close what is open. What fails to close is reported, and costs nothing else."""
        to_close, self._open = self._open, []
        async with asyncio.TaskGroup() as tasks:
            for member, attempt, env in to_close:
                tasks.create_task(self._close(member, attempt, env))

    async def _close(self, member: int, attempt: int, env: Closable) -> None:
        try:
            await env.close()
        except Exception as error:
            logger.warning("the environment of member %d failed to close", member, exc_info=True)
            reason = f"close: {type(error).__name__}: {error}"
            self._failures.append(
                RolloutFailure(member=member, attempt=attempt, origin="env", reason=reason, outcome="kept")
            )

    # ------------------------------------------------------------------ attempts

    async def _make_envs(self, attempt: int) -> Sequence[Env]:
        with attributed_to("env"):
            envs_G = await self._builder.make_envs()
            self._open += [(i, attempt, env) for i, env in enumerate(envs_G) if isinstance(env, Closable)]
            if not envs_G or (self._size and len(envs_G) != self._size):
                raise InputError(f"make_envs gave {len(envs_G)} environments; it must give {self._size or 'some'}")
        return envs_G

    async def _attempt(self, envs: Sequence[tuple[int, Env]], attempt: int) -> None:
        """First observations of some members, then their cohorts."""
        async with asyncio.TaskGroup() as tasks:
            starts = [tasks.create_task(self._first_observation(member, env, attempt)) for member, env in envs]
        if not self._started_seconds:
            self._started_seconds = time.perf_counter()
        for cohort in _cohorts([start for task in starts if (start := task.result()) is not None]):
            self._tasks.create_task(self._play_cohort(cohort, attempt))

    async def _attempt_again(self, members: Sequence[int], attempt: int) -> None:
        try:
            envs_G = await self._make_envs(attempt)
        except AttemptFailedError as error:
            self._fail(members, attempt, error)
            return
        await self._attempt([(member, envs_G[member]) for member in members], attempt)

    async def _first_observation(self, member: int, env: Env, attempt: int) -> _Start | None:
        try:
            with attributed_to("env"):
                observation, stop = await env.initial_observation()
                max_tokens = first_tokens_left(observation, self._limits)
        except AttemptFailedError as error:
            self._fail([member], attempt, error)
            return None
        return _Start(member, env, observation, stop, max_tokens)

    async def _play_cohort(self, cohort: Sequence[_Start], attempt: int) -> None:
        """Members that sample their first action in one request and go on alone."""
        first = cohort[0]
        try:
            actions = await sample_actions(
                self._sampler,
                first.observation,
                first.stop,
                num_samples=len(cohort),
                max_tokens=first.max_tokens,
                seed=derive_seed(self._seed, 0, first.member, attempt),
            )
        except AttemptFailedError as error:
            self._fail([start.member for start in cohort], attempt, error)
            return
        for start, action in zip(cohort, actions, strict=True):
            self._tasks.create_task(self._play(start, action, attempt))

    async def _play(self, start: _Start, action: TokensWithLogprobs, attempt: int) -> None:
        seed_of_turn = partial(derive_seed, self._seed, member=start.member, attempt=attempt)
        try:
            trajectory = await play(
                start.env, self._sampler, start.observation, action, limits=self._limits, seed_of_turn=seed_of_turn
            )
        except AttemptFailedError as error:
            self._fail([start.member], attempt, error)
            return
        self._finished[start.member] = (start.env, trajectory)

    # ------------------------------------------------------------------ failures

    def _fail(self, members: Sequence[int], attempt: int, error: AttemptFailedError) -> None:
        """Record a failed attempt of some members; attempt them again, drop them, or give up the group."""
        is_final = attempt + 1 >= self._strategy.attempts
        outcome = "given_up" if is_final else "retried"
        self._failures += [
            RolloutFailure(member=m, attempt=attempt, origin=error.origin, reason=str(error), outcome=outcome)
            for m in members
        ]
        if not is_final:
            self._tasks.create_task(self._attempt_again(members, attempt + 1))
            return
        num_left = self._size - len({failure.member for failure in self._failures if failure.outcome == "given_up"})
        needed = self._size if self._strategy.min_members is None else self._strategy.min_members
        if num_left < needed:
            raise GroupFailedError(self._failures) from error.__cause__

    def _group_failed(self, error: AttemptFailedError) -> GroupFailedError:
        failure = RolloutFailure(member=_WHOLE_GROUP, attempt=0, origin=error.origin, reason=str(error))
        self._failures.append(failure)
        return GroupFailedError(self._failures)

    async def _group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        try:
            with attributed_to("env"):
                rewards_G = await self._builder.compute_group_rewards(trajectories_G, envs_G)
                if len(rewards_G) != len(trajectories_G):
                    raise InputError(
                        f"compute_group_rewards gave {len(rewards_G)} for {len(trajectories_G)} trajectories"
                    )
                return [(finite(reward), {name: float(value) for name, value in m.items()}) for reward, m in rewards_G]
        except AttemptFailedError as error:
            raise self._group_failed(error) from error.__cause__


def _cohorts(starts: Sequence[_Start]) -> list[list[_Start]]:
    """Members with equal prompts and stop conditions together, in the order of their first member."""
    cohorts: list[list[_Start]] = []
    for start in starts:
        for cohort in cohorts:
            # Members of a group mostly share one prompt object, which makes this a comparison of identities.
            if cohort[0].stop == start.stop and _is_same(cohort[0].observation, start.observation):
                cohort.append(start)
                break
        else:
            cohorts.append([start])
    return cohorts


def _is_same(a: tinker.ModelInput, b: tinker.ModelInput) -> bool:
    return a is b or a == b


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    error: Exception = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
