"""Groups of rollouts to the datums that train on them: advantages, assembly, and what a reference adds to them."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.algorithms.rollouts.pool import FinishedGroup
from cookhouse.rl import (
    ADVANTAGES,
    GroupAdvantages,
    TrajectoryGroup,
    assemble_trajectory,
    kl_penalty,
    remove_constant_reward_groups,
    trained_advantages,
)
from cookhouse.rl.learning.advantages import rewards_differ
from cookhouse.rl.learning.batch import normalize_advantages
from cookhouse.rl.learning.overlong import is_masked, punish_overlong
from cookhouse.settings import AdvantageSettings
from cookhouse.settings.rollouts import OverlongSettings
from cookhouse.telemetry import Telemetry
from cookhouse.training.clients.logprobs import ComputeLogprobs, target_logprobs
from cookhouse.training.work import Assembled

Adjust = Callable[
    [Sequence[tinker.Datum], Sequence[TrajectoryGroup]], Awaitable[tuple[Sequence[tinker.Datum], Mapping[str, float]]]
]
"""Of datums and, for each, the group that it was made of: the same datums with other advantages, and figures."""


@dataclass(frozen=True, kw_only=True)
class RolloutPayload:
    """Inputs with which the groups of a piece of work are trained."""

    num_datums_P: Sequence[int]
    """Of each group that it was made of, in whose order the datums are."""
    num_datums_P_G: Sequence[Sequence[int]] = ()
    """Of each rollout of these groups that is trained on; empty: one each."""
    advantages_P: Sequence[GroupAdvantages | None] = ()
    """Of each of these groups, as the datums have them; None for one that was left out. Empty: there are none."""
    groups_P: Sequence[FinishedGroup] = ()
    """These groups, once they are part of a step."""


@dataclass(frozen=True)
class RolloutAssembler:
    """The assembler of groups of rollouts: advantages, and what a reference adds to them. A datum has by target, (T,)
    each, `target_tokens`, the sampler's `logprobs` in nats, `advantages`, and a `mask`, 1 at sampled tokens that are
    trained.
    """

    settings: AdvantageSettings
    telemetry: Telemetry
    _: KW_ONLY
    overlong: OverlongSettings = field(default_factory=OverlongSettings)
    """Treatment of answers that are too long."""
    reference: ComputeLogprobs | None = None
    """Logprobs that the KL penalty is against."""
    observation_logprobs: ComputeLogprobs | None = None
    """Logprobs at tokens which were not sampled, for a loss that looks at all of them (dro); without it they
    are 0."""
    adjust: Adjust | None = None
    """Changes the datums once the penalty is in their advantages, before these are normalized."""
    span: str = "assemble_rl_batch"
    """Name of the work."""

    async def __call__(self, groups_P: Sequence[TrajectoryGroup]) -> Assembled[RolloutPayload]:
        """Datums of all trajectories, in the order of their groups.

        Raises:
            InputError: what was sampled cannot be trained on.
            ServiceError: the reference failed.
        """
        settings = self.settings
        advantages_of = ADVANTAGES.find(settings.advantage)
        masked = partial(is_masked, settings=self.overlong)
        kept = groups_P if settings.constant_reward_groups == "keep" else remove_constant_reward_groups(groups_P)
        # Where the environment's rewards differ in no group, length alone would be learned.
        punishes = self.overlong.overlong_answers == "punish" and any(map(rewards_differ, groups_P))
        rewarded = [punish_overlong(group, self.overlong) for group in kept] if punishes else kept
        with self.telemetry.span("compute_advantages"):
            advantages_P = [advantages_of(group, settings) for group in rewarded]
        with self.telemetry.span(self.span):
            made = [
                (group, assemble_trajectory(trajectory, advantages_T))
                for group, advantages_G in zip(kept, advantages_P, strict=True)
                for trajectory, advantages_T in zip(group.trajectories_G, advantages_G, strict=True)
                if not masked(trajectory)
            ]
            data_D = [datum for _, data in made for datum in data]
            metrics: dict[str, float] = {}
            if self.reference is not None:
                logprobs_D_T = await target_logprobs(self.reference, data_D)
                data_D, metrics = kl_penalty(
                    data_D,
                    logprobs_D_T,
                    coef=settings.kl_coef,
                    gamma=settings.kl_gamma,
                    is_centered=settings.advantage_normalization == "none",
                )
            if self.adjust is not None:
                adjusted_D, found = await self.adjust(data_D, [group for group, data in made for _ in data])
                data_D, metrics = list(adjusted_D), {**metrics, **found}
            if settings.advantage_normalization == "batch":
                data_D = normalize_advantages(data_D)
            if self.observation_logprobs is not None:
                data_D = _fill(data_D, await target_logprobs(self.observation_logprobs, data_D))
        by_group = dict(zip(map(id, kept), trained_advantages(kept, data_D, is_masked=masked), strict=True))
        sizes: defaultdict[int, list[int]] = defaultdict(list)
        for group, data in made:
            sizes[id(group)].append(len(data))
        payload = RolloutPayload(
            advantages_P=[by_group.get(id(group)) for group in groups_P],
            num_datums_P=[sum(sizes[id(group)]) for group in groups_P],
            num_datums_P_G=[sizes[id(group)] for group in groups_P],
        )
        return Assembled(data_D=data_D, payload=payload, metrics=metrics)


def _fill(data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[NDArray[np.float32]]) -> list[tinker.Datum]:
    filled = []
    for datum, logprobs_T in zip(data_D, logprobs_D_T, strict=True):
        inputs = dict(datum.loss_fn_inputs)
        is_sampled_T = inputs["mask"].to_numpy() > 0
        q_T = np.where(is_sampled_T, inputs["logprobs"].to_numpy(), logprobs_T).astype(np.float32)
        inputs["logprobs"] = tinker.TensorData.from_numpy(q_T)
        filled.append(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs))
    return filled
