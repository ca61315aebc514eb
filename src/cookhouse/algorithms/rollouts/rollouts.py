"""Rollouts of a run once its session is open: the weights that sample, limits, and what is held out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cookhouse.algorithms.base.evaluation import NamedEvaluator
from cookhouse.algorithms.base.run import open_run, scheduled
from cookhouse.algorithms.base.state import OpenedRun, Steps
from cookhouse.algorithms.rollouts.evaluation import RolloutEvaluation, attempt_each
from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.pool import Rollout
from cookhouse.algorithms.rollouts.problems import Problems
from cookhouse.algorithms.rollouts.rollout_pages import RolloutPages
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.chat import Renderer
from cookhouse.rl import EnvGroupBuilder, GroupFailedError, GroupSampler, TrajectoryGroup, do_group_rollout
from cookhouse.settings import RolloutLimits, RolloutTrainingSettings, part_of
from cookhouse.training import ScheduledEvaluation, TrainingClient


@dataclass(frozen=True, kw_only=True)
class OpenedRollouts:
    """Sampling in the environments of a run."""

    settings: RolloutTrainingSettings
    problems: Problems
    opened: OpenedRun
    policy: Policy
    """The weights that sample."""
    rollout: Rollout
    """Rolls out a group; its sequences are no longer than the settings say, and than the model and the service take."""
    pages: RolloutPages
    """Metrics and pages of what was sampled."""
    evaluation: RolloutEvaluation | None
    """Of the held-out problems; None: there are none."""

    async def sample_each(self, builders: Sequence[EnvGroupBuilder]) -> list[TrajectoryGroup | None]:
        """Have the newest weights attempt problems. A group that fails is None, or ends the run, as the settings say.

        Raises:
            GroupFailedError: a group failed that may not, or every one did.
        """
        sampler, settings = await self.policy.newest(), self.settings
        results = await attempt_each(
            builders,
            self.rollout,
            lambda _: sampler,
            max_concurrent=settings.max_concurrent_groups,
            first_seed=sampler.version * settings.batch_size,
        )
        lost = [result for result in results if isinstance(result, GroupFailedError)]
        if lost and settings.on_failed_group == "stop":
            raise lost[0]
        return [result if isinstance(result, TrajectoryGroup) else None for result in results]

    async def sample_groups(self, builders: Sequence[EnvGroupBuilder]) -> list[TrajectoryGroup]:
        """The same without those that failed. Raises as `sample_each`."""
        return [group for group in await self.sample_each(builders) if group is not None]


async def open_rollouts(
    context: RunContext, config: RolloutTrainingSettings, renderer: Renderer, problems: Problems, opened: OpenedRun
) -> OpenedRollouts:
    """Open the policy and the other models that rollouts need, once the session is open.

    Raises:
        InputError: the service refused another model.
        ServiceError: it failed.
    """
    policy = Policy(config)
    context.closing.push_async_callback(policy.aclose)
    for model in problems.second_models:
        await model.open(opened.session.service, context.registry)
    rollout = _rollout(config, problems.context_tokens, opened.session.context_tokens)
    pages = RolloutPages(folder=opened.folder.rollouts, renderer=renderer, telemetry=context.telemetry)

    def keep(step: int, groups: Sequence[TrajectoryGroup]) -> None:
        pages.keep_evaluation(step, groups)
        opened.folder.write_answers(step, pages.answers(groups))

    evaluation = RolloutEvaluation(
        builders=problems.test,
        rollout=rollout,
        settings=config,
        telemetry=context.telemetry,
        measure=pages.measured,
        keep=keep,
    )
    return OpenedRollouts(
        settings=config,
        problems=problems,
        opened=opened,
        policy=policy,
        rollout=rollout,
        pages=pages,
        evaluation=evaluation if problems.test else None,
    )


def _rollout(config: RolloutTrainingSettings, *limits: int | None) -> Rollout:
    taken = [tokens for tokens in limits if tokens is not None]
    if config.scores_sequences:
        # Who asks for logprobs of a sequence samples a token behind it, which has to fit the context, too.
        taken = [tokens - 1 for tokens in taken]
    bounds = taken if config.max_sequence_tokens is None else [*taken, config.max_sequence_tokens]
    bounded = part_of(RolloutLimits, config, max_sequence_tokens=min(bounds, default=None))

    async def rollout(builder: EnvGroupBuilder, sampler: GroupSampler, seed: int) -> TrajectoryGroup:
        return await do_group_rollout(builder, sampler, seed=seed, limits=bounded, strategy=config)

    return rollout


@stage(name="init_session", doing="loading the model", needs=("service",), uses=("completer",))
async def init_rollouts(
    context: RunContext,
    config: RolloutTrainingSettings,
    renderer: Renderer,
    problems: Problems,
    steps: Steps,
    evaluators: Sequence[NamedEvaluator],
) -> tuple[OpenedRun, OpenedRollouts, list[ScheduledEvaluation]]:
    """Open the run directory and then the session, and the other models that rollouts need."""
    opened = await open_run(context, config, steps, evaluators)
    rollouts = await open_rollouts(context, config, renderer, problems, opened)
    return opened, rollouts, scheduled(context, config, opened, evaluators, rollouts.evaluation)


@stage()
def publish_weights(rollouts: OpenedRollouts) -> Callable[[TrainingClient, int], None]:
    """New weights to sample from."""
    return rollouts.policy.publish
