"""Settings of reinforcement learning, by the component that takes them."""

from collections.abc import Mapping
from typing import Any, Literal

import chz

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.policy_losses import CLIP_HIGH, CLIP_LOW, POLICY_LOSSES, PolicyLoss
from cookhouse.settings.checks import above, at_least, between
from cookhouse.settings.defaults import Default, computed, is_left_open
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.reading import ReadIf, read_if
from cookhouse.settings.training import ModelSettings, SeedSettings, ShrinkSettings, TrainingSettings


@chz.chz
class GroupSettings(ShrinkSettings):
    """Problems, and the group of rollouts that each of them gets."""

    batch_size: int = chz.field(
        default=128,
        doc="Groups per step.",
        validator=at_least(1),
        metadata=facts(aliases=(Alias(name="groups_per_batch", doc="tinker-cookbook"),)),
    )
    group_size: int = chz.field(default=16, doc="Rollouts of each problem.", validator=at_least(1))
    format_coef: float = chz.field(
        default=0.1, doc="Reward lost by an answer without the right form.", validator=at_least(0)
    )


@chz.chz
class SamplingSettings:
    """How tokens are drawn. At temperature 1 their logprobs are the trainer's."""

    max_tokens: int = chz.field(default=256, doc="Tokens sampled in each turn.", validator=at_least(1))
    temperature: float = chz.field(
        default=1.0,
        doc="Of sampling; at 1 the sampler's logprobs are the trainer's.",
        validator=above(0, "1; at 0 the rollouts of a group would all be the same, and nothing could be learned"),
    )
    eval_temperature: float = chz.field(
        default=1.0, doc="Of sampling in evaluations; 0 is greedy.", validator=at_least(0)
    )


@chz.chz
class RolloutLimits:
    """Limits that end an episode from outside; None is no limit.

    An episode that reaches one has the `stop_reason` `max_turns`, `max_tokens` or `max_tool_calls`, unless the
    environment ended it as well. `max_sequence_tokens` is of any one sequence, the prompt and what is sampled after it:
    a turn gets what its prompt leaves, and the episode ends where that is nothing. The turn whose calls go past
    `max_tool_calls` is the last.
    """

    max_turns: int | None = chz.field(
        default=None, doc="Turns of an episode; default: the environment's end.", validator=at_least(1)
    )
    max_sequence_tokens: int | None = chz.field(
        default=None, doc="Tokens of an episode, prompts included; default: no limit.", validator=at_least(2)
    )
    max_tool_calls: int | None = chz.field(
        default=None, doc="Tool calls of an episode; default: no limit.", validator=at_least(0)
    )


@chz.chz
class RolloutStrategy:
    """How often a member of a group is attempted, and how many members the group cannot do without.

    Each attempt has a fresh environment. A member that failed its last one is dropped while `min_group_members` can
    still finish. Members that play with each other (`cookhouse.rl.CoupledBuilder`) are attempted again, and dropped,
    together. What fails for the whole group (`make_envs` at first, `compute_group_rewards`) fails it at once.
    """

    rollout_attempts: int = chz.field(default=1, doc="Attempts at a rollout that fails.", validator=at_least(1))
    min_group_members: int | None = chz.field(
        default=None, doc="Rollouts that a group cannot do without; default: all of them.", validator=at_least(1)
    )


@chz.chz
class RolloutSettings(RolloutLimits, RolloutStrategy):
    """Rollouts of groups: how long, how many at a time, and what becomes of failures."""

    on_failed_group: Literal["stop", "skip"] = chz.field(
        default="stop", doc="Whether a group that fails ends the run or is left out of its step."
    )
    max_concurrent_groups: int = chz.field(default=256, doc="Groups being rolled out at a time.", validator=at_least(1))


@chz.chz
class PoolSettings(RolloutSettings):
    """Rollouts of several steps at a time."""

    max_steps_off_policy: int = chz.field(
        default=0, doc="Steps that rollouts may run ahead of training; 0: they never do.", validator=at_least(0)
    )


@chz.chz
class UpdateSettings:
    """How the groups of a step become pieces of work."""

    num_substeps: int = chz.field(
        default=1, doc="Optimizer steps that a batch is divided among.", validator=at_least(1)
    )
    ppo_epochs: int = chz.field(default=1, doc="Times that a batch is trained on.", validator=at_least(1))
    num_minibatches: int = chz.field(
        default=1,
        doc="Pieces of a batch, in the order of the data; above 1, training starts on the first groups.",
        validator=at_least(1),
    )


_OF_TOTAL_REWARDS = ("group_centered", "normalized", "leave_one_out", "none")
_OF_TURNS = (
    read_if(lambda config: config.advantage not in _OF_TOTAL_REWARDS, "with advantage=gae"),
    read_if(
        lambda config: config.advantage != "gae" or config.has_several_turns,
        "in episodes of several turns, and here each has one",
    ),
)


@chz.chz
class AdvantageSettings:
    """How rewards become advantages."""

    advantage: str = chz.field(
        default="group_centered",
        doc="group_centered, normalized, leave_one_out, gae, none (rewards teach nothing), or your own as module:name "
        "or file.py:name.",
    )
    gamma: float = chz.field(
        default=0.99, doc="Discount of later rewards, for gae.", validator=[between(0, 1), *_OF_TURNS]
    )
    gae_lambda: float = chz.field(
        default=0.95, doc="Weight of longer estimates, for gae.", validator=[between(0, 1), *_OF_TURNS]
    )
    remove_constant_reward_groups: bool = chz.field(default=False, doc="Leave out groups with one reward for all.")
    kl_coef: float = chz.field(
        default=0.0,
        doc="Penalty for leaving the reference; 0: none.",
        validator=at_least(0),
        metadata=facts(aliases=(Alias(name="kl_penalty_coef", doc="tinker-cookbook"),)),
    )
    compute_kl: bool = chz.field(
        default=False,
        doc="Report the divergence from the reference also where kl_coef is 0; costs a pass over a batch.",
    )
    kl_gamma: float = chz.field(
        default=0.0,
        doc="Discount of later tokens' penalties; 0: each token has its own.",
        validator=[between(0, 1), read_if(lambda config: config.kl_coef, "with kl_coef above 0", idle=[0])],
        metadata=facts(aliases=(Alias(name="kl_discount_factor", doc="tinker-cookbook"),)),
    )
    kl_reference: str | None = chz.field(
        default=None,
        doc="What divergence is from: a base model, or weights as in load_checkpoint_path; default: the base model.",
        validator=read_if(
            lambda config: config.kl_coef or config.compute_kl, "with kl_coef above 0, or with compute_kl=true"
        ),
        metadata=facts(weights=NamesWeights(), aliases=(Alias(name="reference_model_name", doc="TinkexCookbook"),)),
    )

    @property
    def has_several_turns(self) -> bool:
        """Whether an episode may have more turns than one, as far as the settings tell."""
        return True


def sets_clip(config: Any) -> bool:
    """Whether somebody set a bound of the ratio, and so wants a loss that clips."""
    return not (is_left_open(config, "clip_low") and is_left_open(config, "clip_high"))


def _with(option: str) -> str:
    """The service's losses that have an option, in words."""
    return listed(name for name, loss in POLICY_LOSSES.items() if option in loss.options)


def _read_with(option: str) -> ReadIf:
    return read_if(lambda config: option in config.policy_loss.options, f"by loss_fn={_with(option)}")


def _clip_range(epsilon: Any) -> Mapping[str, Any]:
    try:
        width = float(epsilon)
    except (TypeError, ValueError) as error:
        raise InputError(f"clip_epsilon is {epsilon!r}; it must be a number between 0 and 1, such as 0.2") from error
    return {"clip_low": 1.0 - width, "clip_high": 1.0 + width}


_CLIP_EPSILON = Alias(name="clip_epsilon", means=("clip_low", "clip_high"), convert=_clip_range, doc="1 - ε to 1 + ε")


@chz.chz
class LossSettings:
    """The loss over sampled tokens."""

    loss_fn: str = computed(
        Default(
            lambda config: "ppo" if sets_clip(config) else "importance_sampling",
            "importance_sampling; ppo where clip_low or clip_high is set",
        ),
        str,
        f"{listed(POLICY_LOSSES, 'or')} of the service, or your own as module:name or file.py:name.",
    )
    clip_low: float | None = chz.field(
        default=None,
        doc=f"Lower bound of the ratio, for {_with(CLIP_LOW)}.",
        validator=[at_least(0), _read_with(CLIP_LOW)],
        metadata=facts(aliases=(_CLIP_EPSILON,)),
    )
    clip_high: float | None = chz.field(
        default=None,
        doc=f"Upper bound of the ratio, for {_with(CLIP_HIGH)}.",
        validator=[at_least(0), _read_with(CLIP_HIGH)],
    )
    dro_beta: float | None = chz.field(
        default=None,
        doc="Weight of dro's quadratic term.",
        validator=[at_least(0), _read_with("beta")],
    )
    compute_post_kl: bool = chz.field(
        default=False, doc="Report how far each step moved the weights from its sampler; costs a pass over the batch."
    )

    @property
    def policy_loss(self) -> PolicyLoss:
        """What is known of the loss."""
        return POLICY_LOSSES.get(self.loss_fn, PolicyLoss())

    @property
    def loss_fn_config(self) -> Mapping[str, float]:
        """What is sent with the service's loss: the options that are set, by the service's names."""
        options = {CLIP_LOW: self.clip_low, CLIP_HIGH: self.clip_high, "beta": self.dro_beta}
        return {name: value for name, value in options.items() if value is not None}


@chz.chz
class GradingSettings:
    """Who says how right an answer is."""

    grader: str = chz.field(
        default="math",
        doc="Of answers to mathematics: math (by value), exact (as text), or your own as module:name or file.py:name.",
    )


@chz.chz
class EnvironmentSettings(ModelSettings, SeedSettings, GroupSettings):
    """What environments are made from."""


@chz.chz
class RolloutTrainingSettings(TrainingSettings, EnvironmentSettings, SamplingSettings, RolloutSettings):
    """Settings of every recipe that trains on what the present weights do in environments."""


@chz.chz
class ReinforcementSettings(
    RolloutTrainingSettings,
    PoolSettings,
    UpdateSettings,
    AdvantageSettings,
    LossSettings,
):
    """Settings of every recipe that learns by reward."""

    @chz.validate
    def _pieces_have_groups(self) -> None:
        pieces = self.num_minibatches * self.num_substeps
        if pieces > self.batch_size:
            raise InputError(
                f"num_minibatches={self.num_minibatches} times num_substeps={self.num_substeps} is more than "
                f"batch_size={self.batch_size}; a piece needs at least one group"
            )

    @chz.validate
    def _one_overlap(self) -> None:
        if self.num_minibatches > 1 and self.max_steps_off_policy > 0:
            raise InputError(
                "num_minibatches streams rollouts of the present weights and max_steps_off_policy lets them run ahead; "
                "set only one of the two"
            )

    @chz.validate
    def _groups_can_be_compared(self) -> None:
        size, least = self.group_size, self.min_group_members
        if size == 1 and self.advantage in ("group_centered", "normalized", "leave_one_out") and not self.kl_coef:
            raise InputError(
                "group_size is 1; a rollout is compared with the others of its group, so that nothing could be "
                "learned; it must be at least 2"
            )
        if least is not None and least > size:
            raise InputError(f"min_group_members is {least}, more than group_size={size}; no group could reach it")

    @chz.validate
    def _clip_has_room(self) -> None:
        if self.clip_low is not None and self.clip_high is not None and self.clip_low >= self.clip_high:
            raise InputError(f"clip_low={self.clip_low} must be below clip_high={self.clip_high}")
