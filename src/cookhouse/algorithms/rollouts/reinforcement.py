"""Learning from rollouts by a policy loss: what recipes by reward and from teachers share."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from cookhouse.algorithms.base.evaluation import NamedEvaluator
from cookhouse.algorithms.base.example_log import Keeper
from cookhouse.algorithms.base.facts import Row
from cookhouse.algorithms.base.loop import keeper
from cookhouse.algorithms.base.reference_place import reference_in_words, reference_place
from cookhouse.algorithms.base.run import open_run, scheduled
from cookhouse.algorithms.base.second_model import sampler_at
from cookhouse.algorithms.base.state import OpenedRun, Steps
from cookhouse.algorithms.rollouts.assembler import Adjust, RolloutAssembler, RolloutPayload
from cookhouse.algorithms.rollouts.objective import policy_objective, post_step_divergence
from cookhouse.algorithms.rollouts.pool import FinishedGroup, RolloutPool
from cookhouse.algorithms.rollouts.problems import Environments, Problems, read_problems
from cookhouse.algorithms.rollouts.refill import Refill
from cookhouse.algorithms.rollouts.rollout_log import RolloutLog
from cookhouse.algorithms.rollouts.rollouts import OpenedRollouts, open_rollouts
from cookhouse.algorithms.rollouts.source import RolloutSource
from cookhouse.algorithms.rollouts.state import RolloutState
from cookhouse.algorithms.rollouts.trained_logprobs import trained_logprobs
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.chat import Renderer
from cookhouse.rl import ADVANTAGES, TrajectoryGroup
from cookhouse.rl.learning.advantages import rewards_differ
from cookhouse.rl.learning.overlong import is_masked, overlong_metrics
from cookhouse.runs import RunFolder, RunResult
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import keys, read_metrics
from cookhouse.training import Answered, ComputeLogprobs, Objective, ScheduledEvaluation, TrainingClient
from cookhouse.training.work import Work

logger = logging.getLogger(__name__)

LookBack: TypeAlias = Callable[[TrainingClient, Sequence[Work[Any]]], Awaitable[Mapping[str, float]]]
"""Asks the weights after a step about the work of that step, for metrics of it."""


@dataclass(kw_only=True)
class ReinforcementState(RolloutState):
    """State that the stages of a run that trains by a policy loss share."""

    config: ReinforcementSettings
    objective: Objective[RolloutPayload] = field(init=False)
    reference: ComputeLogprobs | None = field(init=False)
    """Logprobs that divergence is measured from; None: it is not measured."""
    rollout_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `reward_mean` and `reward_std` over the `num_trajectories`."""
    ppo_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step, whichever loss that is: `policy_loss`, a mean over its trained tokens and epochs, and
    `entropy`; `clip_fraction` of a loss that clips, and `value_loss` where a loss of one's own measures it: here no
    value is trained."""

    def data_facts(self) -> Mapping[str, str]:
        config, lag = self.config, self.config.max_steps_off_policy
        return {
            **super().data_facts(),
            **({"rollouts": f"up to {lag} steps old"} if lag else {}),
            "loss": config.loss_fn,
            **({"reference": reference_in_words(config, config.kl_reference)} if config.has_reference else {}),
        }

    def result(self, seconds: float) -> RunResult[Any]:
        """As of every run; the state has what the last step came to, also where this launch took none. What was not
        measured has no key.
        """
        last = last_step(self.opened.folder)
        self.rollout_metrics = {name: last[metric] for name, metric in _ROLLOUT_METRICS.items() if metric in last}
        self.ppo_metrics = {name: last[metric] for name, metric in _PPO_METRICS.items() if metric in last}
        return super().result(seconds)


_ROLLOUT_METRICS = {
    "reward_mean": keys.TRAIN_REWARD,
    "reward_std": keys.TRAIN_REWARD_STD,
    "num_trajectories": keys.TRAIN_EPISODES,
}
_PPO_METRICS = {
    "policy_loss": keys.POLICY_LOSS_MEAN,
    "value_loss": "train/value_loss",  # of a loss of one's own: the service's have none
    "entropy": keys.ENTROPY,
    "clip_fraction": keys.CLIP_SHARE,
}


def last_step(folder: RunFolder) -> Row:
    """Metrics of the last step of a run; empty if it has taken none."""
    return next((row for row in reversed(read_metrics(folder.metrics)) if keys.LEARNING_RATE in row), {})


@stage(name="build_env_group", doing="reading the problems")
async def build_rl_groups(
    context: RunContext, config: ReinforcementSettings, environments: Environments
) -> tuple[Objective[RolloutPayload], Problems, Steps, ReinforcementSettings]:
    """Read the problems, and know from them how many steps there will be."""
    objective = policy_objective(config, reduction=config.reduction)
    ADVANTAGES.find(config.advantage)
    return objective, *await read_problems(context, config, environments)


@stage(name="init_session", doing="loading the model", needs=("service",), uses=("completer",))
async def init_rl_session(
    context: RunContext,
    config: ReinforcementSettings,
    renderer: Renderer,
    problems: Problems,
    steps: Steps,
    evaluators: Sequence[NamedEvaluator],
) -> tuple[OpenedRun, ComputeLogprobs | None, OpenedRollouts, list[ScheduledEvaluation]]:
    """Open the run directory and then the session, and the other models that rollouts and a KL penalty need."""
    opened = await open_run(context, config, steps, evaluators)
    if config.temperature != 1.0:
        logger.warning(
            "temperature is %g: tokens are drawn from another distribution than the one that is trained; the ratios, "
            "clipping, KL and entropy of this run compare the two; with temperature=1 they are the same",
            config.temperature,
        )
    reference = await _open_reference(context, config, opened) if config.has_reference else None
    rollouts = await open_rollouts(context, config, renderer, problems, opened)
    return opened, reference, rollouts, scheduled(context, config, opened, evaluators, rollouts.evaluation)


async def _open_reference(context: RunContext, config: ReinforcementSettings, opened: OpenedRun) -> ComputeLogprobs:
    session = opened.session
    place = await reference_place(
        config, session, opened.folder, context.registry, named=config.kl_reference, purpose="sampling"
    )
    return (await sampler_at(session.service, place)).compute_logprobs


def rollout_source(
    config: ReinforcementSettings, steps: Steps, rollouts: OpenedRollouts, assemble: RolloutAssembler
) -> RolloutSource:
    """The groups of a run as work, from where it stands on."""
    opened = rollouts.opened
    pool = RolloutPool(
        dataset=rollouts.problems.train,
        rollout=rollouts.rollout,
        policy=rollouts.policy,
        log=RolloutLog(opened.folder.rollouts),
        seed=config.seed,
        total_steps=steps.total_steps,
        settings=config,
        first_step=opened.cursor.step,
    )

    def measure(step: int, finished: Sequence[FinishedGroup]) -> Mapping[str, float]:
        groups = [each.group for each in finished if each.group is not None]
        return {**rollouts.pages(pool, step, finished), **overlong_metrics(groups, config)}

    def teaches(group: TrajectoryGroup) -> bool:
        return rewards_differ(group) and not all(is_masked(each, config) for each in group.trajectories_G)

    refill = Refill(teaches=teaches, max_batches=config.max_batches_drawn)
    return RolloutSource(
        pool=pool,
        policy=rollouts.policy,
        assemble=assemble,
        measure=measure,
        settings=config,
        batches_per_epoch=steps.steps_per_epoch,
        total_steps=steps.total_steps,
        needs_whole_steps=config.has_reference or config.advantage_normalization == "batch",
        refill=refill if config.constant_reward_groups == "replace" else None,
        start=opened.cursor,
    )


def rollout_assembler(
    context: RunContext,
    config: ReinforcementSettings,
    reference: ComputeLogprobs | None,
    rollouts: OpenedRollouts,
    *,
    adjust: Adjust | None = None,
    span: str = "assemble_rl_batch",
) -> RolloutAssembler:
    """The assembler of a run's groups; `adjust` and `span` as it takes them."""
    # At tokens that were not sampled the ratio is to be 1, whatever the weights.
    needs_observations = config.policy_loss.reads_unsampled_tokens
    return RolloutAssembler(
        config,
        context.telemetry,
        overlong=config,
        reference=reference,
        observation_logprobs=rollouts.policy.compute_logprobs if needs_observations else None,
        adjust=adjust,
        span=span,
    )


@stage(name="keep_examples")
def keep_rl_examples(
    context: RunContext, config: ReinforcementSettings, opened: OpenedRun, objective: Objective[RolloutPayload]
) -> Keeper:
    """Saves some examples of each step, and what the trained weights found of what was sampled."""
    log, masked = RolloutLog(opened.folder.rollouts), partial(is_masked, settings=config)

    def keep_logprobs(step: int, parts: Answered[RolloutPayload]) -> None:
        log.keep_logprobs(step, trained_logprobs(parts, masked))

    return keeper(context, config, opened, objective, keep_logprobs)


@stage(is_optional=True)
def post_kl(config: ReinforcementSettings) -> LookBack | None:
    """The divergence after each step, where it is asked for."""
    return post_step_divergence if config.compute_post_kl else None
