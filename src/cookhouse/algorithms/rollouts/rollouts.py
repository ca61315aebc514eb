"""Stages that runs over rollouts share, whatever they learn from them: problems, and the sampler of the rollouts."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.evaluation import scheduled_evaluators
from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.algorithms.base.run import open_run, set_steps
from cookhouse.algorithms.base.second_model import SecondModel
from cookhouse.algorithms.rollouts.evaluation import RolloutEvaluation, attempt_all
from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.pool import Rollout
from cookhouse.algorithms.rollouts.rollout_pages import RolloutPages
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.envs import Environments, SecondModels, evenly_spaced
from cookhouse.errors import InputError
from cookhouse.models.catalog import context_tokens
from cookhouse.rl import (
    EnvGroupBuilder,
    GroupSampler,
    RLDataset,
    RLDatasetBuilder,
    TrajectoryGroup,
    do_group_rollout,
)
from cookhouse.rl.env.env import BatchedBuilder, groups_of
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.settings import RolloutLimits, part_of
from cookhouse.training import (
    Cadence,
    SamplingClient,
    ScheduledEvaluation,
)
from cookhouse.weights.names import find_weights
from cookhouse.workflows.reinforcement.state import RolloutState

R = TypeVar("R", bound=RolloutState)


@stage(
    doing="reading the problems",
    reads=("config", "environments"),
    writes=(
        *("train", "test", "context_tokens", "notes", "second_models"),
        *("total_steps", "steps_per_epoch", "adam"),
    ),
)
async def build_env_group(state: RolloutState) -> None:
    """Read the problems, and know from them how many steps there will be."""
    adapters, among = state.context.adapters, (state.context.folder.path.parent, RUNS_FOLDER)
    others = SecondModels(
        partial(_name_second_model, state),
        adapters.completer,
        lambda name: find_weights(name, adapters.registry).origin(among),
    )
    builder = state.environments(others)
    train, test = await builder.build()
    if not len(train):
        raise InputError("there are no groups to train on; see batch_size and what the data holds")
    before, size = state.config.batch_size, fit_batch(state, _steps_of(builder, train), f"{groups_of(train):,} groups")
    if size != before:
        assert isinstance(builder, BatchedBuilder), "others have as many steps with any batch"
        state.second_models.clear()  # they are named again
        train, test = await builder.with_batch_size(size).build()
    state.train = train
    state.test = [] if test is None else _held_out(test, state.config.num_eval)
    state.notes += await asyncio.to_thread(partial(settings_notes, state.config, by_reward=True))
    state.context_tokens = await asyncio.to_thread(context_tokens, state.config.model_name)
    state.notes += [*_batch_notes(train), *_length_notes(state)]
    set_steps(state, len(train))


def _steps_of(builder: RLDatasetBuilder, train: RLDataset) -> Callable[[int], int]:
    if isinstance(builder, Environments):
        return partial(builder.steps_of, train)
    return batches_of(groups_of(train)) if isinstance(builder, BatchedBuilder) else lambda _: len(train)


def _batch_notes(train: RLDataset) -> list[str]:
    num_first, num_last = (len(train.get_batch(index)) for index in (0, len(train) - 1))
    if num_last == num_first:
        return []
    return [f"the last batch of an epoch has {num_last} groups, not {num_first}"]


def _length_notes(state: RolloutState) -> list[str]:
    asked, limit = state.config.max_tokens, state.context_tokens
    if limit is None or asked < limit:
        return []
    return [
        f"max_tokens is {asked:,} and {state.config.model_name} takes {limit:,} tokens, prompt and answer together: a "
        "turn is cut where its prompt leaves no more"
    ]


def _held_out(dataset: RLDataset, count: int) -> list[EnvGroupBuilder]:
    every = [group for index in range(len(dataset)) for group in dataset.get_batch(index)] if count else []
    return evenly_spaced(every, count)


async def _name_second_model(state: RolloutState, name: str) -> SamplingClient:
    state.second_models.append(SecondModel(name))
    return state.second_models[-1]


@stage(
    doing="loading the model",
    reads=("config", "test", "context_tokens", "notes", "renderer", "second_models", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "policy", "rollout_pages", "evaluations"),
    needs=("service",),
    uses=("completer",),
)
async def init_session(state: RolloutState) -> None:
    """Open the run directory and then the session, and the other models that rollouts need."""
    await open_run(state)
    await open_rollouts(state)


async def open_rollouts(state: RolloutState) -> None:
    """Open the policy and the rollouts, once the session is open.

    Raises:
        InputError: the service refused another model.
        ServiceError: it failed.
    """
    config = state.config
    state.policy = Policy(config)
    state.closing.push_async_callback(state.policy.aclose)
    for model in state.second_models:
        await model.open(state.session.service, state.context.adapters.registry)
    state.rollout_pages = RolloutPages(
        folder=state.folder.rollouts,
        renderer=state.renderer,
        telemetry=state.telemetry,
    )
    if state.test:
        evaluation = RolloutEvaluation(
            state.test,
            rollout=rollout_of(state),
            settings=config,
            telemetry=state.telemetry,
            measure=state.rollout_pages.measured,
            keep=partial(_keep_evaluation, state),
        )
        cadence = Cadence(every=config.eval_every, at_start=config.eval_at_start)
        state.evaluations.append(ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence))
    state.evaluations += scheduled_evaluators(state.evaluators, state.telemetry, state.folder.evaluations)


def rollout_of(state: RolloutState) -> Rollout:
    """Rolls out a group; its sequences are no longer than the config says, and than the model and the service take."""
    config = state.config
    taken = [tokens for tokens in (state.context_tokens, state.session.context_tokens) if tokens is not None]
    if state.scores_sequences:
        # Who asks for logprobs of a sequence samples a token behind it, which has to fit the context, too.
        taken = [tokens - 1 for tokens in taken]
    bounds = taken if config.max_sequence_tokens is None else [*taken, config.max_sequence_tokens]
    max_tokens = min(bounds, default=None)
    limits = part_of(RolloutLimits, config, max_sequence_tokens=max_tokens)

    async def rollout(builder: EnvGroupBuilder, sampler: GroupSampler, seed: int) -> TrajectoryGroup:
        return await do_group_rollout(builder, sampler, seed=seed, limits=limits, strategy=config)

    return rollout


async def sample_groups(state: RolloutState, builders: Sequence[EnvGroupBuilder]) -> list[TrajectoryGroup]:
    """Have the newest weights attempt problems; a group that fails is left out, or ends the run, as the config says.

    Raises:
        GroupFailedError: a group failed that may not, or every one did.
    """
    sampler, config = await state.policy.newest(), state.config
    groups, lost = await attempt_all(
        builders,
        rollout_of(state),
        lambda _: sampler,
        max_concurrent=config.max_concurrent_groups,
        first_seed=sampler.version * config.batch_size,
    )
    if lost and config.on_failed_group == "stop":
        raise lost[0]
    return groups


def _keep_evaluation(state: RolloutState, step: int, groups: Sequence[TrajectoryGroup]) -> None:
    state.rollout_pages.keep_evaluation(step, groups)
    state.folder.write_answers(step, state.rollout_pages.answers(groups))


def publish_slot() -> SlotStage[R]:
    """New weights to sample from."""
    return SlotStage(name="publish_weights", make=lambda state: state.policy.publish, reads=("policy",))
