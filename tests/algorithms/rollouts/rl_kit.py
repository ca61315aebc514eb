"""A guessing game, and everything between it and the loop over the fake service."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tinker

from cookhouse.algorithms.rollouts.assembler import RolloutAssembler, RolloutPayload
from cookhouse.algorithms.rollouts.objective import policy_objective
from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.pool import FinishedGroup, RolloutPool
from cookhouse.algorithms.rollouts.refill import Refill
from cookhouse.algorithms.rollouts.rollout_log import RolloutLog
from cookhouse.algorithms.rollouts.source import RolloutSource
from cookhouse.rl import (
    EnvGroupBuilder,
    GroupSampler,
    Metrics,
    RolloutStrategy,
    StepResult,
    StopCondition,
    Trajectory,
    TrajectoryGroup,
    do_group_rollout,
    failure_metrics,
    group_metrics,
)
from cookhouse.settings import (
    AdvantageSettings,
    LossSettings,
    OptimizerSettings,
    SamplingSettings,
    TrainingSettings,
    UpdateSettings,
)
from cookhouse.settings.rollouts import PoolSettings
from cookhouse.telemetry import JsonlSink, Telemetry, read_metrics
from cookhouse.training import (
    AdamSchedule,
    CheckpointKind,
    FakeService,
    Interrupt,
    LoopSlots,
    SessionSpec,
    StepLog,
    TrainingLoop,
    open_session,
    submit_checkpoint,
)
from cookhouse.training.work import Assembler
from cookhouse.weights.checkpoints import CheckpointFile, Cursor

Delay = Callable[[int], Awaitable[None]]


def guess(theta: Any, prompt_T: Sequence[int], chance: np.random.Generator) -> list[int]:
    """Three tokens near the prompt's, weighted by how likely the fake model thinks each is."""
    choices = np.arange(8) + 8 * (prompt_T[0] % 8)
    weights = np.exp(theta[choices])
    return [int(token) for token in chance.choice(choices, size=3, p=weights / weights.sum())]


async def _no_delay(number: int) -> None:  # noqa: ARG001
    return


class GuessEnv:
    """One turn; the reward is the share of even tokens, or none at all where the problem is dull."""

    def __init__(self, number: int, delay: Delay, *, is_dull: bool = False) -> None:
        self._number = number
        self._delay = delay
        self._is_dull = is_dull

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        await self._delay(self._number)
        return tinker.ModelInput.from_ints([self._number, 100 + self._number]), []

    async def step(self, action: Sequence[int]) -> StepResult:
        reward = 0.0 if self._is_dull else sum(token % 2 == 0 for token in action) / len(action)
        return StepResult(
            reward=reward,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=[],
            metrics={"even": reward},
        )


@dataclass(frozen=True, kw_only=True)
class GuessGroup:
    number: int
    delay: Delay
    size: int = 4
    is_dull: bool = False

    async def make_envs(self) -> Sequence[GuessEnv]:
        return [GuessEnv(self.number, self.delay, is_dull=self.is_dull) for _ in range(self.size)]

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Any]
    ) -> Sequence[tuple[float, Metrics]]:
        del envs_G
        return [(0.0, {}) for _ in trajectories_G]

    def logging_tags(self) -> Sequence[str]:
        return ["guess"]


class GuessDataset:
    """Groups numbered through all batches of an epoch."""

    def __init__(
        self,
        num_batches: int = 3,
        batch_size: int = 4,
        delay: Delay = _no_delay,
        is_dull: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._num_batches = num_batches
        self._batch_size = batch_size
        self._delay = delay
        self._is_dull = is_dull

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        start = index * self._batch_size
        numbers = range(start, start + self._batch_size)
        return [GuessGroup(number=n, delay=self._delay, is_dull=self._is_dull(n)) for n in numbers]

    def __len__(self) -> int:
        return self._num_batches


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a step was trained on."""

    step: int
    versions: Sequence[int]
    ids: Sequence[tuple[int, int]]
    taught: Sequence[tuple[int, int]]
    """Those of them that have advantages."""


class RLKit:
    """Builds loops that write to one folder, as the runs of one interrupted job do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints = CheckpointFile(folder / "checkpoints.jsonl")
        self.interrupt = Interrupt()
        self.telemetry = Telemetry()
        self.trained: list[Trained] = []
        self.measured: Mapping[int, asyncio.Event] = defaultdict(asyncio.Event)
        """Of each step, set once its groups are complete."""
        self.pool: RolloutPool
        self.num_rollouts = 0

    async def loop(
        self,
        service: FakeService,
        *,
        total_steps: int = 5,
        update: UpdateSettings | None = None,
        dataset: GuessDataset | None = None,
        strategy: RolloutStrategy | None = None,
        refill: Refill | None = None,
        save_every: int = 0,
        patience_seconds: float = 10.0,
        assemble: Assembler[Sequence[TrajectoryGroup], RolloutPayload] | None = None,
        **rollout_settings: Any,
    ) -> TrainingLoop[RolloutPayload]:
        last = self.checkpoints.last_state()
        resume_path = None if last is None else last.state_path
        cursor = Cursor() if last is None else last.cursor
        spec = SessionSpec(settings=TrainingSettings(lora_rank=4), resume_path=resume_path)
        session = await open_session(service.connect, spec)
        self.telemetry.close()
        self.telemetry = Telemetry([JsonlSink(self.folder / "metrics.jsonl")])
        advantage = AdvantageSettings(constant_reward_groups="keep" if refill is None else "replace")
        policy = Policy(SamplingSettings(max_tokens=8))
        data = dataset or GuessDataset()

        async def rollout(builder: EnvGroupBuilder, sampler: GroupSampler, seed: int) -> TrajectoryGroup:
            self.num_rollouts += 1
            return await do_group_rollout(builder, sampler, seed=seed, strategy=strategy or RolloutStrategy())

        self.pool = RolloutPool(
            dataset=data,
            rollout=rollout,
            policy=policy,
            log=RolloutLog(self.folder / "rollouts"),
            seed=7,
            total_steps=total_steps,
            settings=PoolSettings(**rollout_settings),
            first_step=cursor.step,
        )
        source = RolloutSource(
            pool=self.pool,
            policy=policy,
            assemble=assemble or RolloutAssembler(advantage, self.telemetry),
            refill=refill,
            measure=self._measure,
            settings=update or UpdateSettings(),
            batches_per_epoch=len(data),
            total_steps=total_steps,
            start=cursor,
        )
        return TrainingLoop(
            client=session.client,
            slots=LoopSlots(
                evaluate=(),
                get_work=source,
                forward_backward=policy_objective(LossSettings()),
                optim_step=AdamSchedule(settings=OptimizerSettings(learning_rate=0.05), total_steps=total_steps),
                checkpoint=lambda client, at: submit_checkpoint(client, at, kind=CheckpointKind.STATE),
                log=StepLog(self.telemetry, total_steps, steps_per_epoch=total_steps),
                publish=policy.publish,
            ),
            save_every=save_every,
            total_steps=total_steps,
            checkpoints=self.checkpoints,
            telemetry=self.telemetry,
            interrupt=self.interrupt,
            patience_seconds=patience_seconds,
        )

    def _measure(self, step: int, finished: Sequence[FinishedGroup]) -> Mapping[str, float]:
        groups = [each.group for each in finished if each.group is not None]
        errors = [each.error for each in finished if each.error is not None]
        self.trained.append(
            Trained(
                step=step,
                versions=[group.version for group in groups],
                ids=[(each.id.step, each.id.number) for each in finished],
                taught=[(each.id.step, each.id.number) for each in finished if each.advantages is not None],
            )
        )
        self.measured[step].set()
        return {**group_metrics(groups), **failure_metrics(groups, errors)}


async def settle() -> None:
    """Let everything that can run do so."""
    for _ in range(50):
        await asyncio.sleep(0)


COLUMNS = ("step", "optim/loss", "optim/grad_norm", "env/all/reward/total", "optim/lr", "progress/batch")


def rows(kit: RLKit) -> list[list[float]]:
    kit.telemetry.close()
    return [[row[column] for column in COLUMNS] for row in read_metrics(kit.folder / "metrics.jsonl")]


def jitter(seed: int, *, slow: Sequence[int] = ()) -> Any:
    """Groups begin after a few turns of the event loop, drawn by seed; some of them much later."""
    chance = np.random.default_rng(seed)

    async def delay(number: int) -> None:
        turns = 400 if number in slow else int(chance.integers(0, 8))
        for _ in range(turns):
            await asyncio.sleep(0)

    return delay
