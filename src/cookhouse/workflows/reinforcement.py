"""The reinforcement workflow: environments in, an adapter that earns more in them out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cookhouse.catalog import context_tokens
from cookhouse.chat import Renderer
from cookhouse.data import build_renderer
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.rl import (
    EnvGroupBuilder,
    GroupSampler,
    RLDataset,
    RLDatasetBuilder,
    RolloutLimits,
    RolloutStrategy,
    TrajectoryGroup,
    do_group_rollout,
)
from cookhouse.training import (
    AdvantageSpec,
    ComputeLogprobs,
    Policy,
    PolicyLoss,
    Rollout,
    RolloutBatcher,
    RolloutLog,
    RolloutPool,
    RolloutSource,
    Sampling,
    SamplingClient,
    StepLog,
    StepPlan,
    post_step_divergence,
)
from cookhouse.workflows.rollout_evaluation import RolloutEvaluation
from cookhouse.workflows.rollout_report import RolloutReport
from cookhouse.workflows.second_model import SecondModel, open_sampler
from cookhouse.workflows.stage import SlotStage, stage
from cookhouse.workflows.training_run import (
    TrainingPlan,
    TrainingState,
    cleanup,
    evaluate,
    open_run,
    save_final,
    save_state,
    set_steps,
)
from cookhouse.workflows.workflow import LoopStages, Workflow

logger = logging.getLogger(__name__)

OpenSampler = Callable[[str], Awaitable[SamplingClient]]
"""A sampling client of a base model, or of a `tinker://` path; it answers once the session is open."""
MakeData = Callable[[OpenSampler], RLDatasetBuilder]
"""The environments of a recipe."""


@dataclass(frozen=True, kw_only=True)
class ReinforcementPlan(TrainingPlan):
    """Everything a reinforcement run is told, all of it decided."""

    make_data: MakeData
    sampling: Sampling
    eval_sampling: Sampling
    num_eval: int
    limits: RolloutLimits
    strategy: RolloutStrategy
    fails_with_group: bool
    max_concurrent_groups: int
    max_lag: int
    step_plan: StepPlan
    advantages: AdvantageSpec
    reference_model: str | None
    """Base model or `tinker://` path that the KL penalty is against; None: there is no penalty."""
    loss: PolicyLoss
    computes_post_kl: bool
    """Whether each step's divergence is also measured after it."""


@dataclass(kw_only=True)
class ReinforcementState(TrainingState):
    """What the stages of a reinforcement run hand to one another."""

    plan: ReinforcementPlan
    renderer: Renderer = field(init=False)
    train: RLDataset = field(init=False)
    test: Sequence[EnvGroupBuilder] = field(init=False)
    """Groups to evaluate on; empty: nothing is evaluated."""
    second_models: list[SecondModel] = field(init=False, default_factory=list)
    """Those that environments asked for, besides the one that is trained."""
    policy: Policy = field(init=False)
    reference: ComputeLogprobs | None = field(init=False)
    report: RolloutReport = field(init=False)


@stage(reads=("plan",), writes=("renderer",))
async def init_tokenizer(state: ReinforcementState) -> None:
    """Load the tokenizer, and the renderer over it."""
    plan = state.plan
    state.renderer = await asyncio.to_thread(
        partial(build_renderer, plan.model_name, plan.renderer_name, force=plan.force_renderer)
    )


@stage(
    reads=("plan",),
    writes=("train", "test", "context_tokens", "notes", "second_models", "total_steps", "cadence", "adam"),
)
async def build_env_group(state: ReinforcementState) -> None:
    """Read the problems, and know from them how many steps there will be."""
    train, test = await state.plan.make_data(partial(_name_second_model, state)).build()
    if not len(train):
        raise InputError("there are no groups to train on; see batch_size and what the data holds")
    state.train = train
    state.test = [] if test is None else _held_out(test, state.plan.num_eval)
    state.context_tokens = await asyncio.to_thread(context_tokens, state.plan.model_name)
    state.notes += [*_batch_notes(train), *_length_notes(state)]
    set_steps(state, len(train))


def _batch_notes(train: RLDataset) -> list[str]:
    num_first, num_last = (len(train.get_batch(index)) for index in (0, len(train) - 1))
    if num_last == num_first:
        return []
    return [f"the last batch of an epoch has {num_last} groups, not {num_first}"]


def _length_notes(state: ReinforcementState) -> list[str]:
    asked, limit = state.plan.sampling.max_tokens, state.context_tokens
    if limit is None or asked < limit:
        return []
    return [
        f"max_tokens is {asked:,} and {state.plan.model_name} takes {limit:,} tokens, prompt and answer together: a "
        "turn is cut where its prompt leaves no more"
    ]


def _held_out(dataset: RLDataset, count: int) -> list[EnvGroupBuilder]:
    every = [group for index in range(len(dataset)) for group in dataset.get_batch(index)] if count else []
    return evenly_spaced(every, count)


async def _name_second_model(state: ReinforcementState, name: str) -> SamplingClient:
    state.second_models.append(SecondModel(name))
    return state.second_models[-1]


@stage(
    reads=("plan", "choice", "test", "context_tokens", "notes", "renderer", "second_models", "total_steps"),
    writes=("folder", "checkpoints", "cursor", "session", "policy", "reference", "report", "evaluation"),
    needs=("service",),
)
async def init_session(state: ReinforcementState) -> None:
    """Open the run folder and then the session, and the other models that rollouts and a KL penalty need."""
    plan = state.plan
    await open_run(state)
    if plan.sampling.temperature != 1.0:
        logger.warning(
            "temperature is %g: tokens are drawn from another distribution than the one that is trained; the ratios, "
            "clipping, KL and entropy of this run compare the two; with temperature=1 they are the same",
            plan.sampling.temperature,
        )
    state.policy = Policy(plan.sampling)
    state.reference = None
    if plan.reference_model is not None:
        state.reference = (await open_sampler(state.session.service, plan.reference_model)).compute_logprobs
    for model in state.second_models:
        await model.open(state.session.service)
    state.report = RolloutReport(
        folder=state.folder.rollouts,
        tokenizer=state.renderer.encoder.tokenizer,
        telemetry=state.telemetry,
    )
    state.evaluation = None
    if state.test:
        state.evaluation = RolloutEvaluation(
            state.test,
            rollout=rollout_of(state),
            sampling=plan.eval_sampling,
            telemetry=state.telemetry,
            keep=partial(_keep_evaluation, state),
            max_concurrent=plan.max_concurrent_groups,
        )


def rollout_of(state: ReinforcementState) -> Rollout:
    """Rolls out a group; its sequences are no longer than the plan says, and than the model and the service take."""
    limits = state.plan.limits
    bounds = (limits.max_tokens, state.context_tokens, state.session.context_tokens)
    limits = replace(limits, max_tokens=min((tokens for tokens in bounds if tokens is not None), default=None))

    async def rollout(builder: EnvGroupBuilder, sampler: GroupSampler, seed: int) -> TrajectoryGroup:
        return await do_group_rollout(builder, sampler, seed=seed, limits=limits, strategy=state.plan.strategy)

    return rollout


def _keep_evaluation(state: ReinforcementState, step: int, groups: Sequence[TrajectoryGroup]) -> None:
    state.report.keep_evaluation(step, groups)
    state.folder.write_answers(step, state.report.answers(groups))


def _source(state: ReinforcementState) -> RolloutSource:
    plan = state.plan
    pool = RolloutPool(
        dataset=state.train,
        rollout=rollout_of(state),
        policy=state.policy,
        log=RolloutLog(state.folder.rollouts),
        seed=plan.seed,
        total_steps=state.total_steps,
        max_lag=plan.max_lag,
        max_concurrent=plan.max_concurrent_groups,
        fails_with_group=plan.fails_with_group,
        first_step=state.cursor.step,
    )
    # dro looks at every token: at those that were not sampled its ratio is to be 1, whatever the weights.
    needs_observations = plan.loss.loss_fn == "dro"
    batcher = RolloutBatcher(
        plan.advantages,
        state.telemetry,
        reference=state.reference,
        observation_logprobs=state.policy.compute_logprobs if needs_observations else None,
    )
    return RolloutSource(
        pool=pool,
        policy=state.policy,
        assemble=batcher,
        report=partial(state.report, pool),
        plan=plan.step_plan,
        batches_per_epoch=len(state.train),
        total_steps=state.total_steps,
        start=state.cursor,
    )


def _slot(name: str, make: Callable[[ReinforcementState], Any], **more: Any) -> SlotStage[ReinforcementState]:
    return SlotStage(name=name, make=make, **more)


REINFORCEMENT = Workflow(
    name="reinforcement",
    state_class=ReinforcementState,
    # What can be wrong with the caller's input is found before the folder is made and the session opened.
    setup=(init_tokenizer, build_env_group, init_session),
    loop=LoopStages(
        get_work=_slot(
            "do_rollout",
            _source,
            reads=("train", "context_tokens", "session", "policy", "reference", "report", "total_steps", "cursor"),
            parts=("compute_advantages", "assemble_rl_batch"),
        ),
        forward_backward=_slot("ppo_update", lambda state: state.plan.loss, reads=("plan",)),
        optim_step=_slot("optim_step", lambda state: state.adam, reads=("adam",)),
        log=_slot(
            "log_rl_metrics",
            lambda state: StepLog(state.telemetry, state.total_steps, event="rl.step"),
            reads=("telemetry", "total_steps"),
        ),
        checkpoint=_slot(
            "checkpoint",
            lambda state: partial(save_state, state.plan),
            reads=("plan", "session", "checkpoints", "cadence"),
            is_optional=True,
        ),
        evaluate=_slot("evaluate", lambda state: state.evaluation, reads=("evaluation",), is_optional=True),
        look_back=_slot(
            "post_kl",
            lambda state: post_step_divergence if state.plan.computes_post_kl else None,
            reads=("plan",),
            is_optional=True,
        ),
        publish=_slot("publish_weights", lambda state: state.policy.publish, reads=("policy",)),
    ),
    final=(save_final, evaluate),
    cleanup=cleanup,
)
