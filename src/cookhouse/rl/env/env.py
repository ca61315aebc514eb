"""Environments of reinforcement learning, the groups they come in, and data sets of groups.

RLDatasetBuilder ──build──► RLDataset ──get_batch──► EnvGroupBuilder ──make_envs──► Env × group size
(config)                                             (picklable)                    (single use)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import tinker

from cookhouse.rl.sampling.sampler import StopCondition, TokensWithLogprobs
from cookhouse.rl.trajectory import Trajectory
from cookhouse.settings import RolloutLimits

Metrics: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of an action in an environment."""

    reward: float
    episode_done: bool
    next_observation: tinker.ModelInput
    """All that the model sees next, not only what is new; empty after the end."""
    next_stop_condition: StopCondition
    metrics: Metrics = field(default_factory=dict)
    """Figures of this step, averaged over a batch under `env/`."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Text for the transcript, such as the answer that was expected."""
    num_tool_calls: int = 0
    """Tool calls of the action, for the limit on them."""


class Env(Protocol):
    """One episode, used once and never reset. Observations and actions are tokens.

    One that has an async `close()` (`Closable`) is closed when its group is over.
    """

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        """The first prompt, and where an action ends."""

    async def step(self, action: Sequence[int]) -> StepResult:
        """Answer the sampled tokens, the stop token included, also where a grammar ended them without one."""


@runtime_checkable
class Closable(Protocol):
    """An environment that holds something; closed once the group is rewarded, failed or cancelled."""

    async def close(self) -> None: ...


@runtime_checkable
class SelfLimited(Protocol):
    """An environment that keeps the limits of rollouts itself, and tells whoever acts in it where one is reached."""

    def keep_limits(self, limits: RolloutLimits) -> None:
        """The limits, before the first observation."""

    @property
    def max_action_tokens(self) -> int | None:
        """Tokens that the next action may have; None: as many as the sampler allows."""

    def sampled(self, action: TokensWithLogprobs) -> None:
        """The whole of what `step` is given next."""


class EnvGroupBuilder(Protocol):
    """Makes a group of environments that share one problem, so that their rewards can be compared. Picklable."""

    async def make_envs(self) -> Sequence[Env]:
        """New environments, one for each rollout of the group."""

    async def compute_group_rewards(
        self, trajectories_G: Sequence[Trajectory], envs_G: Sequence[Env]
    ) -> Sequence[tuple[float, Metrics]]:
        """Reward and metrics of each trajectory in the light of the others, added to the rewards of its steps."""

    def logging_tags(self) -> Sequence[str]:
        """Names, such as of the data set, by which metrics are also reported apart."""


@runtime_checkable
class CoupledBuilder(Protocol):
    """A group builder of whose members some play with each other, so that none of them can go on without the others."""

    def coupled_members(self) -> Sequence[Sequence[int]]:
        """Indices of the members that share a game, one sequence for each game; who is not named plays alone. When one
        fails, all of its game are attempted again with environments of one `make_envs`, or dropped together.
        """


class RLDataset(Protocol):
    """Batches of group builders, the same at every call for the same index."""

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of a batch. Indices from `len` on are those of later epochs."""

    def __len__(self) -> int:
        """Batches in an epoch."""


class RLDatasetBuilder(Protocol):
    """A serializable config (`chz`) of the data to train on and, if there is any, the data to evaluate on."""

    async def build(self) -> tuple[RLDataset, RLDataset | None]:
        """Read what is needed."""


@runtime_checkable
class BatchedBuilder(RLDatasetBuilder, Protocol):
    """A builder whose batches can be of another size."""

    def with_batch_size(self, batch_size: int) -> RLDatasetBuilder:
        """The same, with so many groups in a batch."""


def groups_of(dataset: RLDataset) -> int:
    """Groups in an epoch of batches that are of one size, but for the last."""
    first, last = (len(dataset.get_batch(index)) for index in (0, len(dataset) - 1))
    return (len(dataset) - 1) * first + last
