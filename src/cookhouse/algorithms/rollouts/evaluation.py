"""Held-out problems, attempted by the weights at one point of a run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.algorithms.base.evaluation import record_metrics
from cookhouse.algorithms.rollouts.policy import PolicySampler
from cookhouse.algorithms.rollouts.pool import Rollout
from cookhouse.rl import EnvGroupBuilder, GroupFailedError, GroupSampler, TrajectoryGroup
from cookhouse.settings import RolloutTrainingSettings
from cookhouse.telemetry import Telemetry, Values
from cookhouse.training import SamplingClient, TrainingClient


@dataclass(frozen=True, kw_only=True)
class RolloutEvaluation:
    """Plays every held-out group once, with the same seeds each time, from a snapshot that later steps do not reach.

    Metrics are those of rollouts under `test/`. A group that fails is counted and left out.
    """

    builders: Sequence[EnvGroupBuilder]
    rollout: Rollout
    settings: RolloutTrainingSettings
    telemetry: Telemetry
    measure: Callable[[Sequence[TrajectoryGroup], Sequence[GroupFailedError]], Mapping[str, float]]
    keep: Callable[[int, Sequence[TrajectoryGroup]], None]

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        return self._finish(step, client.save_weights_and_get_sampling_client())

    async def _finish(self, step: int, snapshot: Awaitable[SamplingClient]) -> Values:
        settings = self.settings
        sampler = PolicySampler(
            await snapshot, step, max_tokens=settings.max_tokens, temperature=settings.eval_temperature
        )
        groups, lost = await attempt_all(
            self.builders, self.rollout, lambda _: sampler, max_concurrent=settings.max_concurrent_groups
        )
        found = self.measure(groups, lost)
        self.keep(step, groups)
        return record_metrics(self.telemetry, step, found)


async def attempt_all(
    builders: Sequence[EnvGroupBuilder],
    rollout: Rollout,
    sampler_of: Callable[[EnvGroupBuilder], GroupSampler],
    *,
    max_concurrent: int,
) -> tuple[list[TrajectoryGroup], list[GroupFailedError]]:
    """Play every group once: those that came back, and why the others did not. Raises as `attempt_each`."""
    results = await attempt_each(builders, rollout, sampler_of, max_concurrent=max_concurrent)
    groups = [result for result in results if isinstance(result, TrajectoryGroup)]
    return groups, [result for result in results if isinstance(result, GroupFailedError)]


async def attempt_each(
    builders: Sequence[EnvGroupBuilder],
    rollout: Rollout,
    sampler_of: Callable[[EnvGroupBuilder], GroupSampler],
    *,
    max_concurrent: int,
    first_seed: int = 0,
) -> list[TrajectoryGroup | GroupFailedError]:
    """Play every group once, each with its place as its seed; the result has the order of the builders.

    Raises:
        GroupFailedError: every group failed.
        Exception: what else a rollout raises; the others are stopped first.
    """
    slots = asyncio.Semaphore(max_concurrent)

    async def play(builder: EnvGroupBuilder, seed: int) -> TrajectoryGroup | GroupFailedError:
        async with slots:
            try:
                return await rollout(builder, sampler_of(builder), seed)
            except GroupFailedError as error:
                return error

    try:
        async with asyncio.TaskGroup() as tasks:
            playing = [tasks.create_task(play(builder, seed)) for seed, builder in enumerate(builders, first_seed)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    results = [task.result() for task in playing]
    lost = [result for result in results if isinstance(result, GroupFailedError)]
    if len(lost) == len(results):
        raise lost[0]
    return results
