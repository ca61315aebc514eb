"""State of a reinforcement run, passed from stage to stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from cookhouse.algorithms.base.run import TrainingState
from cookhouse.algorithms.base.second_model import SecondModel
from cookhouse.algorithms.base.spending import ExpectedTokens, in_steps
from cookhouse.algorithms.rollouts.assembler import RolloutPayload
from cookhouse.algorithms.rollouts.policy import Policy
from cookhouse.algorithms.rollouts.rollout_pages import RolloutPages
from cookhouse.data.batches.counting import count_items
from cookhouse.envs import OpenSampler
from cookhouse.rl import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from cookhouse.rl.env.env import groups_of
from cookhouse.settings import ReinforcementSettings, RolloutTrainingSettings
from cookhouse.training import (
    ComputeLogprobs,
    Objective,
)

Environments = Callable[[OpenSampler], RLDatasetBuilder]
"""What a run learns in; the argument opens a sampler of another model, once rollouts run."""


@dataclass(kw_only=True)
class RolloutState(TrainingState):
    """State that the stages of a run over rollouts share, whatever it learns from them."""

    config: RolloutTrainingSettings
    environments: Environments
    train: RLDataset = field(init=False)
    test: Sequence[EnvGroupBuilder] = field(init=False)
    """Groups to evaluate on; empty: nothing is evaluated."""
    second_models: list[SecondModel] = field(default_factory=list)
    """Those that environments asked for, besides the one that is trained."""
    policy: Policy = field(init=False)
    rollout_pages: RolloutPages = field(init=False)

    @property
    def dataset(self) -> "EpochBatches":
        """The groups of `train` in batches."""
        return EpochBatches(self.train)

    @property
    def expected_tokens(self) -> ExpectedTokens:
        config = self.config
        per_step = len(self.train.get_batch(0))
        num_groups = count_items(
            groups_of(self.train),
            batch_size=per_step,
            total_steps=self.total_steps,
            steps_per_epoch=self.steps_per_epoch,
        )
        sizes = [num_groups, config.group_size, config.max_tokens]
        turns, of_turns = (", in each turn", "") if config.max_turns is None else ("", f" × {config.max_turns} turns")
        return ExpectedTokens(
            tokens={"sampled_tokens": prod([*sizes, config.max_turns or 1, config.rollout_attempts, self.num_draws])},
            degree="at most",
            remark=f"{in_steps(num_groups, self.total_steps, per_step)} groups × {config.group_size:,} rollouts × "
            f"{config.max_tokens:,} tokens"
            + of_turns
            + (f" × {config.rollout_attempts} attempts" if config.rollout_attempts > 1 else "")
            + (f" × {self.num_draws} batches drawn" if self.num_draws > 1 else "")
            + turns,
            on_top="prompts, and training on these with what was sampled; evaluations",
        )

    @property
    def num_draws(self) -> int:
        """Batches that a step may sample until it is full."""
        return 1

    @property
    def scores_sequences(self) -> bool:
        """True if somebody is asked for the logprobs of whole sequences."""
        return False


class EpochBatches:
    """Batches of groups as `BatchSource` takes them, epoch after epoch."""

    def __init__(self, groups: RLDataset) -> None:
        self._groups = groups
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return self._groups.get_batch(self._epoch * len(self) + index)

    def __len__(self) -> int:
        return len(self._groups)


@dataclass(kw_only=True)
class ReinforcementState(RolloutState):
    """State that the stages of a reinforcement run share."""

    config: ReinforcementSettings
    objective: Objective[RolloutPayload] = field(init=False)
    reference: ComputeLogprobs | None = field(init=False)
    rollout_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `reward_mean` and `reward_std` over the `num_trajectories`."""
    ppo_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step, whichever loss that is: `policy_loss`, a mean over its trained tokens and epochs, and
    `entropy`; `clip_fraction` and `value_loss` of a loss that has them."""

    @property
    def num_draws(self) -> int:
        return self.config.max_batches_drawn if self.config.constant_reward_groups == "replace" else 1

    @property
    def scores_sequences(self) -> bool:
        """True if somebody is asked for the logprobs of whole sequences."""
        return self.reference is not None or self.config.policy_loss.reads_unsampled_tokens
