"""Group rollouts: the members of a group play their episodes at once, from one version of the weights.

    make_envs ─► initial observations ─► cohorts of equal prompts, one request each ─► episodes ─► group rewards
        ▲                  │ failed                  │ failed                             │ failed
        └──────────────────┴── next attempt, if any ◄┴────────────────────────────────────┘

A member is attempted again, or dropped, with those that play with it (`CoupledBuilder`): a game goes on with all its
players or with none. Every task belongs to one task group, so that whatever ends a group leaves none behind.

Legend: G members.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import tinker

from cookhouse.callables.blocking import watched
from cookhouse.callables.returned import refused, returned_metrics, returned_reward
from cookhouse.errors import InputError
from cookhouse.rl.env.env import CoupledBuilder, Env, EnvGroupBuilder, Metrics, SelfLimited
from cookhouse.rl.env.tags import checked_tags
from cookhouse.rl.rollouts.closing import OpenEnvs
from cookhouse.rl.rollouts.episode import (
    NO_LIMITS,
    AttemptFailedError,
    attributed_to,
    first_tokens_left,
    kept_observation,
    play,
    sample_actions,
)
from cookhouse.rl.rollouts.failures import FAIL_FAST, GroupFailedError
from cookhouse.rl.sampling.sampler import GroupSampler, StopCondition, TokensWithLogprobs
from cookhouse.rl.sampling.seeds import derive_seed
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup
from cookhouse.settings import RolloutLimits, RolloutStrategy
from cookhouse.telemetry import Recording

_WHOLE_GROUP = -1


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
    recording: Recording
    """Of this attempt."""


class _GroupRollout:
    """State of one group; used once.

    `_attempt_of` counts the attempts at each member that have failed: news of an earlier one comes too late.
    """

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
        self._open = OpenEnvs()
        self._failures: list[RolloutFailure] = []
        self._finished: dict[int, tuple[Env, Trajectory]] = {}
        self._size = 0
        self._coupled: Mapping[int, frozenset[int]] = {}
        self._attempt_of: dict[int, int] = {}
        self._at_work: dict[int, asyncio.Task[Any]] = {}
        self._started_seconds = 0.0
        self._recording = Recording()

    async def run(self) -> TrajectoryGroup:
        try:
            envs_G = await self._make_envs(0)
            with attributed_to("env"):
                self._coupled = _coupled(self._builder, len(envs_G))
        except AttemptFailedError as error:
            raise self._group_failed(error) from error.__cause__
        self._size = len(envs_G)
        self._attempt_of = dict.fromkeys(range(self._size), 0)
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
            tags=checked_tags(self._builder.logging_tags, self._builder.logging_tags()),
            version=self._version,
            failures=tuple(sorted(self._failures, key=lambda failure: (failure.member, failure.attempt))),
            seconds=seconds,
            entries=self._recording.drain(),
        )

    async def close(self) -> None:
        """Close what is open, to the end even where cancellation arrives meanwhile."""
        self._failures += await self._open.close()

    # ------------------------------------------------------------------ attempts

    async def _make_envs(self, attempt: int) -> Sequence[Env]:
        with attributed_to("env"):
            with self._recording.active():
                made = await watched(self._builder.make_envs)
            envs_G = _envs(self._builder.make_envs, made)
            self._open.add(envs_G, attempt)
            for env in envs_G:
                if isinstance(env, SelfLimited):
                    env.keep_limits(self._limits)
            if not envs_G or (self._size and len(envs_G) != self._size):
                raise InputError(f"make_envs gave {len(envs_G)} environments; it must give {self._size or 'some'}")
        return envs_G

    async def _attempt(self, envs: Sequence[tuple[int, Env]], attempt: int) -> None:
        """First observations of some members, then their cohorts."""
        async with asyncio.TaskGroup() as tasks:
            for member, env in envs:
                self._at_work[member] = tasks.create_task(self._first_observation(member, env, attempt))
            observing = [(member, self._at_work[member]) for member, _ in envs]
        if not self._started_seconds:
            self._started_seconds = time.perf_counter()
        for cohort in _cohorts([task.result() for member, task in observing if self._is_current(member, attempt)]):
            self._tasks.create_task(self._play_cohort(cohort, attempt))

    async def _attempt_again(self, members: Sequence[int], attempt: int) -> None:
        try:
            envs_G = await self._make_envs(attempt)
        except AttemptFailedError as error:
            self._fail(members, attempt, error)
            return
        await self._attempt([(member, envs_G[member]) for member in members], attempt)

    async def _first_observation(self, member: int, env: Env, attempt: int) -> _Start | None:
        recording = Recording()
        try:
            with attributed_to("env"):
                with recording.active():
                    begun = await watched(env.initial_observation)
                observation, stop = _begun(env.initial_observation, begun)
                max_tokens = first_tokens_left(env, observation, self._limits)
        except AttemptFailedError as error:
            self._fail([member], attempt, error)
            return None
        return _Start(member, env, observation, stop, max_tokens, recording)

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
            if self._is_current(start.member, attempt):
                self._at_work[start.member] = self._tasks.create_task(self._play(start, action, attempt))

    async def _play(self, start: _Start, action: TokensWithLogprobs, attempt: int) -> None:
        seed_of_turn = partial(derive_seed, self._seed, member=start.member, attempt=attempt)
        try:
            trajectory = await play(
                start.env,
                self._sampler,
                start.observation,
                action,
                stop=start.stop,
                limits=self._limits,
                seed_of_turn=seed_of_turn,
                recording=start.recording,
            )
        except AttemptFailedError as error:
            self._fail([start.member], attempt, error)
            return
        self._finished[start.member] = (start.env, trajectory)

    # ------------------------------------------------------------------ failures

    def _is_current(self, member: int, attempt: int) -> bool:
        return self._attempt_of[member] == attempt

    def _fail(self, members: Sequence[int], attempt: int, error: AttemptFailedError) -> None:
        """Record a failed attempt of some members, which ends that of those coupled to them too; attempt them again,
        drop them, or give up the group.
        """
        failed = [member for member in members if self._is_current(member, attempt)]
        if not failed:
            return
        together = sorted({partner for member in failed for partner in self._coupled[member]})
        is_final = attempt + 1 >= self._strategy.rollout_attempts
        for member in together:
            self._attempt_of[member] = attempt + 1
            self._finished.pop(member, None)
            if member not in failed:
                self._at_work[member].cancel()
        self._failures += _failures(failed, together, attempt, error, "given_up" if is_final else "retried")
        if not is_final:
            self._tasks.create_task(self._attempt_again(together, attempt + 1))
            return
        num_left = self._size - len({failure.member for failure in self._failures if failure.outcome == "given_up"})
        least = self._strategy.min_group_members
        needed = self._size if least is None else least
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
                compute = self._builder.compute_group_rewards
                with self._recording.active():
                    found = await watched(compute, trajectories_G, envs_G)
                return _rewards(compute, found, len(trajectories_G))
        except AttemptFailedError as error:
            raise self._group_failed(error) from error.__cause__


def _envs(make_envs: Callable[..., Any], made: object) -> list[Env]:
    is_list = isinstance(made, Sequence) and all(hasattr(env, "initial_observation") for env in made)
    if not is_list:
        raise refused(make_envs, made, "it must return a list of environments, each with initial_observation and step")
    return list(cast("Sequence[Env]", made))


def _begun(initial_observation: Callable[..., Any], begun: object) -> tuple[tinker.ModelInput, StopCondition]:
    if not isinstance(begun, tuple) or len(begun) != 2:
        raise refused(initial_observation, begun, "it must return a tinker.ModelInput and where an action ends")
    return kept_observation(initial_observation, begun[0]), copy(begun[1])


def _rewards(compute: Callable[..., Any], found: object, count: int) -> list[tuple[float, Metrics]]:
    """Of each trajectory. Raises `InputError` for what are none."""
    wants = f"it must return {count} pairs, a reward and metrics for each trajectory"
    if not isinstance(found, Sequence) or len(found) != count:
        raise refused(compute, found, wants)
    for pair in found:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise refused(compute, pair, wants)
    return [(returned_reward(compute, reward), returned_metrics(compute, metrics)) for reward, metrics in found]


def _coupled(builder: EnvGroupBuilder, size: int) -> dict[int, frozenset[int]]:
    """Of each member, those that play with it, itself included."""
    coupled = {member: frozenset((member,)) for member in range(size)}
    if isinstance(builder, CoupledBuilder):
        parts = [frozenset(part) for part in builder.coupled_members()]
        named = [member for part in parts for member in part]
        if len(set(named)) < len(named) or not coupled.keys() >= set(named):
            raise InputError(f"coupled_members gave {parts} of {size} members; each may be named once")
        coupled |= {member: part for part in parts for member in part}
    return coupled


def _failures(
    failed: Sequence[int], together: Sequence[int], attempt: int, error: AttemptFailedError, outcome: str
) -> list[RolloutFailure]:
    """Failures, those of the partners first: the last one is to name the cause."""
    reason = f"member {failed[0]} failed, with whom it plays"
    left = [
        RolloutFailure(member=member, attempt=attempt, origin="partner", reason=reason, outcome=outcome)
        for member in together
        if member not in failed
    ]
    return left + [
        RolloutFailure(member=member, attempt=attempt, origin=error.origin, reason=str(error), outcome=outcome)
        for member in failed
    ]


def _cohorts(starts: Sequence[_Start]) -> list[list[_Start]]:
    """Members with equal prompts and stop conditions together, in the order of their first member."""
    cohorts: list[list[_Start]] = []
    for start in starts:
        for cohort in cohorts:
            # Members of a group mostly share one prompt object, which makes this a comparison of identities.
            first = cohort[0]
            are_asked_alike = first.stop == start.stop and first.max_tokens == start.max_tokens
            if are_asked_alike and _is_same(first.observation, start.observation):
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
