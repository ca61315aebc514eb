"""The reinforcement workflow: environments in, an adapter that earns more in them out."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from cookhouse.data import DataSource
from cookhouse.envs import SecondModels, evenly_spaced
from cookhouse.errors import InputError
from cookhouse.models.catalog import context_tokens
from cookhouse.registry import Descent
from cookhouse.rl import (
    ADVANTAGES,
    EnvGroupBuilder,
    GroupSampler,
    RLDataset,
    TrajectoryGroup,
    do_group_rollout,
)
from cookhouse.settings import ReinforcementSettings, RolloutLimits, part_of
from cookhouse.telemetry import events
from cookhouse.training import (
    Cadence,
    FinishedStep,
    SamplingClient,
    ScheduledEvaluation,
    StepLog,
)
from cookhouse.workflows.base.estimate import with_estimate
from cookhouse.workflows.base.evaluation import init_evaluators, scheduled_evaluators
from cookhouse.workflows.base.run import open_run, set_steps
from cookhouse.workflows.base.second_model import SecondModel, open_sampler
from cookhouse.workflows.base.slots import objective_slot
from cookhouse.workflows.base.summary import settings_notes
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.reinforcement.assembler import RolloutAssembler
from cookhouse.workflows.reinforcement.divergence import with_divergence_watch
from cookhouse.workflows.reinforcement.evaluation import RolloutEvaluation
from cookhouse.workflows.reinforcement.objective import policy_objective, post_step_divergence
from cookhouse.workflows.reinforcement.policy import Policy
from cookhouse.workflows.reinforcement.pool import Rollout, RolloutPool
from cookhouse.workflows.reinforcement.rollout_log import RolloutLog
from cookhouse.workflows.reinforcement.rollout_pages import RolloutPages
from cookhouse.workflows.reinforcement.source import RolloutSource
from cookhouse.workflows.reinforcement.state import Environments, ReinforcementState
from cookhouse.workflows.reinforcement.summary import facts, reinforcement_result
from cookhouse.workflows.stages.stage import SlotStage, stage
from cookhouse.workflows.stages.workflow import Workflow

logger = logging.getLogger(__name__)


R = TypeVar("R", bound=ReinforcementState)


@stage(
    reads=("config", "environments"),
    writes=(
        "train",
        "test",
        "objective",
        "context_tokens",
        "notes",
        "second_models",
        "total_steps",
        "steps_per_epoch",
        "adam",
    ),
)
async def build_env_group(state: ReinforcementState) -> None:
    """Read the problems, and know from them how many steps there will be."""
    state.objective = policy_objective(state.config)
    ADVANTAGES.find(state.config.advantage)
    others = SecondModels(partial(_name_second_model, state), state.context.adapters.completer)
    train, test = await state.environments(others).build()
    if not len(train):
        raise InputError("there are no groups to train on; see batch_size and what the data holds")
    state.train = train
    state.test = [] if test is None else _held_out(test, state.config.num_eval)
    state.notes += await asyncio.to_thread(partial(settings_notes, state.config, by_reward=True))
    state.context_tokens = await asyncio.to_thread(context_tokens, state.config.model_name)
    state.notes += [*_batch_notes(train), *_length_notes(state)]
    set_steps(state, len(train))


def _batch_notes(train: RLDataset) -> list[str]:
    num_first, num_last = (len(train.get_batch(index)) for index in (0, len(train) - 1))
    if num_last == num_first:
        return []
    return [f"the last batch of an epoch has {num_last} groups, not {num_first}"]


def _length_notes(state: ReinforcementState) -> list[str]:
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


async def _name_second_model(state: ReinforcementState, name: str) -> SamplingClient:
    state.second_models.append(SecondModel(name))
    return state.second_models[-1]


@stage(
    reads=("config", "test", "context_tokens", "notes", "renderer", "second_models", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "policy", "reference", "rollout_pages", "evaluations"),
    needs=("service",),
    uses=("completer",),
)
async def init_session(state: ReinforcementState) -> None:
    """Open the run folder and then the session, and the other models that rollouts and a KL penalty need."""
    await open_run(state)
    config = state.config
    if config.temperature != 1.0:
        logger.warning(
            "temperature is %g: tokens are drawn from another distribution than the one that is trained; the ratios, "
            "clipping, KL and entropy of this run compare the two; with temperature=1 they are the same",
            config.temperature,
        )
    state.policy = Policy(config)
    registry = state.context.adapters.registry
    state.reference = None
    if config.kl_coef or config.compute_kl:
        reference_model = config.kl_reference or config.model_name
        state.reference = (await open_sampler(state.session.service, reference_model, registry)).compute_logprobs
    for model in state.second_models:
        await model.open(state.session.service, registry)
    state.rollout_pages = RolloutPages(
        folder=state.folder.rollouts,
        tokenizer=state.renderer.encoder.tokenizer,
        telemetry=state.telemetry,
    )
    if state.test:
        evaluation = RolloutEvaluation(
            state.test,
            rollout=rollout_of(state),
            settings=config,
            telemetry=state.telemetry,
            keep=partial(_keep_evaluation, state),
        )
        cadence = Cadence(every=config.eval_every, at_start=True)
        state.evaluations.append(ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence))
    state.evaluations += scheduled_evaluators(state.evaluators, state.telemetry, state.folder.evaluations)


def rollout_of(state: ReinforcementState) -> Rollout:
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


def _keep_evaluation(state: ReinforcementState, step: int, groups: Sequence[TrajectoryGroup]) -> None:
    state.rollout_pages.keep_evaluation(step, groups)
    state.folder.write_answers(step, state.rollout_pages.answers(groups))


def rollout_source(state: ReinforcementState, assemble: RolloutAssembler | None = None) -> RolloutSource:
    """The groups of a run as work; default: with the advantages that their rewards give."""
    config = state.config
    pool = RolloutPool(
        dataset=state.train,
        rollout=rollout_of(state),
        policy=state.policy,
        log=RolloutLog(state.folder.rollouts),
        seed=config.seed,
        total_steps=state.total_steps,
        settings=config,
        first_step=state.cursor.step,
    )
    return RolloutSource(
        pool=pool,
        policy=state.policy,
        assemble=assemble or rollout_assembler(state),
        measure=partial(state.rollout_pages, pool),
        settings=config,
        batches_per_epoch=state.steps_per_epoch,
        total_steps=state.total_steps,
        needs_whole_steps=state.reference is not None,
        start=state.cursor,
    )


def _log(state: ReinforcementState) -> Callable[[FinishedStep], None]:
    return rollout_log(state, events.RL_STEP)


def rollout_log(state: ReinforcementState, event: str) -> Callable[[FinishedStep], None]:
    """Reports the steps of a run over rollouts, under `event` too; estimates its end, and warns of ratios."""
    log = StepLog(state.telemetry, state.total_steps, steps_per_epoch=state.steps_per_epoch, event=event)
    watched = with_divergence_watch(log, state.telemetry, state.config)
    return with_estimate(watched, state.telemetry, state.total_steps)


def rollout_assembler(state: ReinforcementState, **more: Any) -> RolloutAssembler:
    """The assembler of a run's groups; `more` as it takes them."""
    # At tokens that were not sampled the ratio is to be 1, whatever the weights.
    needs_observations = state.config.policy_loss.reads_unsampled_tokens
    return RolloutAssembler(
        state.config,
        state.telemetry,
        reference=state.reference,
        observation_logprobs=state.policy.compute_logprobs if needs_observations else None,
        **more,
    )


def post_kl_slot() -> SlotStage[R]:
    """The divergence after each step, where it is asked for."""
    return SlotStage(
        name="post_kl",
        make=lambda state: post_step_divergence if state.config.compute_post_kl else None,
        reads=("config",),
        is_optional=True,
    )


def publish_slot() -> SlotStage[R]:
    """New weights to sample from."""
    return SlotStage(name="publish_weights", make=lambda state: state.policy.publish, reads=("policy",))


def reinforcement_workflow(
    config: ReinforcementSettings, environments: Environments, *, data_files: Mapping[str, DataSource] | None = None
) -> Workflow[ReinforcementState]:
    """The stages of a reinforcement run in environments; `data_files` are those that these read, by what for."""
    return training_workflow(
        name="reinforcement",
        state_class=ReinforcementState,
        start=lambda context: ReinforcementState(context=context, config=config, environments=environments),
        setup=(init_tokenizer, build_env_group, init_evaluators, init_session),
        get_work=SlotStage(
            name="do_rollout",
            make=rollout_source,
            reads=(
                *("train", "context_tokens", "session", "policy", "reference", "rollout_pages"),
                *("total_steps", "steps_per_epoch", "cursor"),
            ),
            parts=("compute_advantages", "assemble_rl_batch"),
        ),
        forward_backward=objective_slot("ppo_update"),
        log=SlotStage(name="log_rl_metrics", make=_log, reads=("total_steps", "steps_per_epoch")),
        look_back=post_kl_slot(),
        publish=publish_slot(),
        descent=Descent.RL_TRAINED_FROM,
        result=reinforcement_result,
        facts=facts,
        data_files=data_files,
    )
