"""Problems that rollouts attempt: read from environments, in batches, and how many steps they make."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.algorithms.base.run import planned_steps
from cookhouse.algorithms.base.second_model import SecondModel
from cookhouse.algorithms.base.spending import ExpectedTokens, in_steps
from cookhouse.algorithms.base.state import Steps
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.data.batches.counting import count_items
from cookhouse.envs import Environments as NamedEnvironments
from cookhouse.envs import OpenSampler, SecondModels, evenly_spaced
from cookhouse.errors import InputError
from cookhouse.models.catalog import context_tokens
from cookhouse.rl import EnvGroupBuilder, RLDataset, RLDatasetBuilder, TrajectoryGroup
from cookhouse.rl.env.env import BatchedBuilder, groups_of
from cookhouse.settings import RolloutTrainingSettings
from cookhouse.telemetry import ResultNote
from cookhouse.training import SamplingClient
from cookhouse.weights.names import find_weights

Environments: TypeAlias = Callable[[OpenSampler], RLDatasetBuilder]
"""Environments of a run; the argument opens a sampler of another model, once rollouts run."""

C = TypeVar("C", bound=RolloutTrainingSettings)


class EpochBatches:
    """Batches of groups as `BatchSource` takes them, epoch after epoch."""

    def __init__(self, groups: RLDataset) -> None:
        self._groups = groups
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """As of `cookhouse.training.Batches`."""
        self._epoch = epoch

    def get_batch(self, index: int) -> Sequence[Any]:
        """The builders of the groups of a batch."""
        return self._groups.get_batch(self._epoch * len(self) + index)

    def __len__(self) -> int:
        return len(self._groups)


class WeightedProblems(EpochBatches):
    """Batches of problems by number, each drawn by a weight: a function of the mean rewards that the problem's groups
    earned so far, in their order. No problem is twice in a batch. What was earned is saved with each checkpoint
    (`cookhouse.training.Remembering`), so that a resumed run draws what the whole one would have drawn.
    """

    def __init__(self, train: RLDataset, weight: Callable[[Sequence[float]], float], *, seed: int) -> None:
        super().__init__(train)
        self.problems = [problem for index in range(len(train)) for problem in train.get_batch(index)]
        self.earned: list[list[float]] = [[] for _ in self.problems]
        self._weight, self._seed, self._batch_size = weight, seed, len(train.get_batch(0))

    def get_batch(self, index: int) -> Sequence[int]:
        """Numbers of problems. Raises `InputError` where too few weights are above 0."""
        weights = np.array([self._weight(earned) for earned in self.earned], dtype=np.float64)
        usable = np.isfinite(weights) & (weights >= 0)
        if not usable.all() or np.count_nonzero(weights) < self._batch_size:
            raise InputError(
                f"{np.count_nonzero(weights * usable):,} of {weights.size:,} problems have a weight above 0, and a "
                f"batch draws {self._batch_size:,}; give every problem a small weight"
            )
        rng = np.random.default_rng([self._seed, self._epoch, index])
        return [int(i) for i in rng.choice(weights.size, self._batch_size, replace=False, p=weights / weights.sum())]

    def learn(self, number: int, group: TrajectoryGroup) -> None:
        """Remember what a group earned at a problem."""
        self.earned[number].append(float(np.mean(group.get_total_rewards())))

    def state(self) -> Mapping[str, Any]:
        """The mean rewards of each problem's groups."""
        return {"earned": self.earned}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises `InputError` for what was earned at other problems."""
        if len(state["earned"]) != len(self.problems):
            raise InputError(
                f"the checkpoint remembers {len(state['earned']):,} problems, and there are {len(self.problems):,}; "
                "resume with the same environment and settings"
            )
        self.earned = [[float(reward) for reward in earned] for earned in state["earned"]]


@dataclass(frozen=True, kw_only=True)
class Problems:
    """Problems of a run, each a builder of a group of rollouts."""

    train: RLDataset
    """In batches, a step each."""
    test: Sequence[EnvGroupBuilder]
    """To evaluate on; empty: nothing is evaluated."""
    context_tokens: int | None
    """Context length of the model, prompt and answer together, in tokens; None if it is not known here."""
    second_models: Sequence[SecondModel]
    """Models that environments asked for, besides the one that is trained."""

    @property
    def batches(self) -> EpochBatches:
        """`train` for a `BatchSource`."""
        return EpochBatches(self.train)


@stage(doing="reading the problems")
async def build_env_group(
    context: RunContext, config: RolloutTrainingSettings, environments: Environments
) -> tuple[Problems, Steps, RolloutTrainingSettings]:
    """Read the problems, and know from them how many steps there will be."""
    return await read_problems(context, config, environments)


async def read_problems(context: RunContext, config: C, environments: Environments) -> tuple[Problems, Steps, C]:
    """The problems of a run, its steps, and its settings with the batch size that fits.

    Raises:
        InputError: problems cannot be read, or there is none.
    """
    named: list[SecondModel] = []

    async def name_second_model(name: str) -> SamplingClient:
        named.append(SecondModel(name))
        return named[-1]

    registry = context.registry
    others = SecondModels(
        name_second_model,
        context.adapters.completer,
        lambda name: find_weights(name, registry).origin(context.run_folders),
    )
    builder = environments(others)
    train, test = await builder.build()
    if not len(train):
        raise InputError("there are no groups to train on; see batch_size and what the data holds")
    fitted = fit_batch(context, config, _steps_of(builder, train), f"{groups_of(train):,} groups")
    if fitted is not config:
        assert isinstance(builder, BatchedBuilder), "others have as many steps with any batch"
        named.clear()  # they are named again
        train, test = await builder.with_batch_size(fitted.batch_size).build()
    limit = await asyncio.to_thread(context_tokens, config.model_name)
    context.notes += await asyncio.to_thread(partial(settings_notes, fitted, by_reward=True))
    context.notes += [*_batch_notes(train), *_length_notes(config, limit)]
    problems = Problems(
        train=train,
        test=[] if test is None else _held_out(test, config.num_eval),
        context_tokens=limit,
        second_models=named,
    )
    return problems, planned_steps(context, fitted, len(train), partial(_expected_tokens, fitted, train)), fitted


def _steps_of(builder: RLDatasetBuilder, train: RLDataset) -> Callable[[int], int]:
    if isinstance(builder, NamedEnvironments):
        return partial(builder.steps_of, train)
    return batches_of(groups_of(train)) if isinstance(builder, BatchedBuilder) else lambda _: len(train)


def _batch_notes(train: RLDataset) -> list[str]:
    num_first, num_last = (len(train.get_batch(index)) for index in (0, len(train) - 1))
    if num_last == num_first:
        return []
    return [f"the last batch of an epoch has {num_last} groups, not {num_first}"]


def _length_notes(config: RolloutTrainingSettings, limit: int | None) -> list[str]:
    if limit is None or config.max_tokens < limit:
        return []
    return [
        ResultNote(
            f"max_tokens is {config.max_tokens:,} and {config.model_name} takes {limit:,} tokens, prompt and answer "
            "together: a turn is cut where its prompt leaves no more"
        )
    ]


def _held_out(dataset: RLDataset, count: int) -> list[EnvGroupBuilder]:
    every = [group for index in range(len(dataset)) for group in dataset.get_batch(index)] if count else []
    return evenly_spaced(every, count)


def _expected_tokens(
    config: RolloutTrainingSettings, train: RLDataset, total_steps: int, steps_per_epoch: int
) -> ExpectedTokens:
    """Tokens that rollouts sample where every turn is as long as it may be."""
    per_step = len(train.get_batch(0))
    num_groups = count_items(
        groups_of(train), batch_size=per_step, total_steps=total_steps, steps_per_epoch=steps_per_epoch
    )
    factors = {"turns": config.max_turns, "attempts": config.rollout_attempts, "batches drawn": config.num_draws}
    said = [
        f" × {count} {what}" for what, count in factors.items() if count is not None and (count > 1 or what == "turns")
    ]
    counts = [num_groups, config.group_size, config.max_tokens, *(count or 1 for count in factors.values())]
    return ExpectedTokens(
        tokens={"sampled_tokens": prod(counts)},
        degree="at most",
        remark=f"{in_steps(num_groups, total_steps, per_step)} groups × {config.group_size:,} rollouts × "
        f"{config.max_tokens:,} tokens{''.join(said)}" + ("" if config.max_turns else ", in each turn"),
        on_top="prompts, and training on these with what was sampled; evaluations",
    )
