"""The reinforcement workflow: environments in, an adapter that earns more in them out."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cookhouse.algorithms.base.estimate import with_estimate
from cookhouse.algorithms.base.evaluation import init_evaluators
from cookhouse.algorithms.base.loop import keep_slot, objective_slot
from cookhouse.algorithms.base.reference_place import reference_place
from cookhouse.algorithms.base.run import open_run
from cookhouse.algorithms.base.second_model import sampler_at
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.rollouts.assembler import RolloutAssembler
from cookhouse.algorithms.rollouts.pool import FinishedGroup, RolloutPool
from cookhouse.algorithms.rollouts.refill import Refill
from cookhouse.algorithms.rollouts.rollout_log import RolloutLog
from cookhouse.algorithms.rollouts.rollouts import publish_slot, rollout_of
from cookhouse.algorithms.rollouts.source import Measure, RolloutSource
from cookhouse.algorithms.rollouts.trained_logprobs import TrainedLogprobs
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.callables.arguments import checked
from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.rl import ADVANTAGES, TrajectoryGroup
from cookhouse.rl.learning.advantages import rewards_differ
from cookhouse.rl.learning.overlong import is_masked, overlong_metrics
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import events
from cookhouse.training import (
    FinishedStep,
    StepLog,
)
from cookhouse.workflows.reinforcement import rollouts
from cookhouse.workflows.reinforcement.objective import policy_objective, post_step_divergence, with_divergence_watch
from cookhouse.workflows.reinforcement.state import Environments, ReinforcementState
from cookhouse.workflows.reinforcement.summary import facts, reinforcement_result

logger = logging.getLogger(__name__)


R = TypeVar("R", bound=ReinforcementState)


@stage(
    doing="reading the problems",
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
    state.objective = policy_objective(state.config, reduction=state.config.reduction)
    ADVANTAGES.find(state.config.advantage)
    await rollouts.build_env_group.run(state)


@stage(
    doing="loading the model",
    reads=("config", "test", "context_tokens", "notes", "renderer", "second_models", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "policy", "reference", "rollout_pages", "evaluations"),
    needs=("service",),
    uses=("completer",),
)
async def init_session(state: ReinforcementState) -> None:
    """Open the run directory and then the session, and the other models that rollouts and a KL penalty need."""
    await open_run(state)
    config = state.config
    if config.temperature != 1.0:
        logger.warning(
            "temperature is %g: tokens are drawn from another distribution than the one that is trained; the ratios, "
            "clipping, KL and entropy of this run compare the two; with temperature=1 they are the same",
            config.temperature,
        )
    state.reference = None
    if config.kl_coef or config.compute_kl:
        session, registry = state.session, state.context.adapters.registry
        place = await reference_place(
            config, session, state.folder, registry, named=config.kl_reference, purpose="sampling"
        )
        state.reference = (await sampler_at(session.service, place)).compute_logprobs
    await rollouts.open_rollouts(state)


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
        measure=_measure(state, pool),
        settings=config,
        batches_per_epoch=state.steps_per_epoch,
        total_steps=state.total_steps,
        needs_whole_steps=state.reference is not None or config.advantage_normalization == "batch",
        refill=_refill(config),
        start=state.cursor,
    )


def _measure(state: ReinforcementState, pool: RolloutPool) -> Measure:
    def measure(step: int, finished: Sequence[FinishedGroup]) -> Mapping[str, float]:
        groups = [each.group for each in finished if each.group is not None]
        return {**state.rollout_pages(pool, step, finished), **overlong_metrics(groups, state.config)}

    return measure


def _refill(config: ReinforcementSettings) -> Refill | None:
    if config.constant_reward_groups != "replace":
        return None

    def teaches(group: TrajectoryGroup) -> bool:
        return rewards_differ(group) and not all(is_masked(each, config) for each in group.trajectories_G)

    return Refill(teaches=teaches, max_batches=config.max_batches_drawn)


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
        overlong=state.config,
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


@checked
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
                *("config", "train", "context_tokens", "session", "folder", "policy", "reference", "rollout_pages"),
                *("total_steps", "steps_per_epoch", "cursor"),
            ),
            parts=("compute_advantages", "assemble_rl_batch"),
        ),
        forward_backward=objective_slot("ppo_update"),
        log=SlotStage(name="log_rl_metrics", make=_log, reads=("config", "total_steps", "steps_per_epoch")),
        keep=keep_slot(TrainedLogprobs),
        look_back=post_kl_slot(),
        publish=publish_slot(),
        descent=Descent.RL_TRAINED_FROM,
        result=reinforcement_result,
        facts=facts,
        data_files=data_files,
    )
