"""Settings of reinforcement learning, by the component that takes them."""

from collections.abc import Mapping
from typing import Any, Literal

import chz

from cookhouse.errors import InputError
from cookhouse.losses.policy_losses import BOUNDS, CLIP_HIGH, CLIP_LOW, POLICY_LOSSES, PolicyLoss, check_options
from cookhouse.naming import listed
from cookhouse.settings.advantages import AdvantageSettings
from cookhouse.settings.checks import Checked, at_least, bounded
from cookhouse.settings.defaults import Default, computed, is_left_open
from cookhouse.settings.facts import Alias, facts
from cookhouse.settings.reading import ReadIf, read_if
from cookhouse.settings.rollouts import OverlongSettings, PoolSettings, RolloutSettings, SamplingSettings
from cookhouse.settings.training import ModelSettings, SeedSettings, ShrinkSettings, TrainingSettings


@chz.chz
class GroupSettings(ShrinkSettings):
    """Problems, and the group of rollouts that each of them gets."""

    help_title = "Problems"

    batch_size: int = chz.field(
        default=128,
        doc="Groups per step.",
        validator=at_least(1),
        metadata=facts(aliases=(Alias(name="groups_per_batch", doc="tinker-cookbook"),)),
    )
    group_size: int = chz.field(default=16, doc="Rollouts per problem.", validator=at_least(1))
    format_coef: float = chz.field(
        default=0.1, doc="Reward lost by an answer without the right form.", validator=at_least(0)
    )


@chz.chz
class UpdateSettings:
    """Settings by which the groups of a step become pieces of work."""

    help_title = "Optimizer"

    num_substeps: int = chz.field(
        default=1, doc="Optimizer steps that a batch is divided among.", validator=at_least(1)
    )
    ppo_epochs: int = chz.field(default=1, doc="Times that a batch is trained on.", validator=at_least(1))
    num_minibatches: int = chz.field(
        default=1,
        doc="Pieces of a batch, in the order of the data; above 1, training starts on the first groups.",
        validator=at_least(1),
    )
    reduction: Literal["none", "mean", "token_mean"] = chz.field(
        default="none",
        doc="Weight of a token in the loss: none, 1; mean, 1 over the tokens of its rollout; token_mean, 1 over those "
        "of the optimizer step.",
    )


def sets_clip(config: Any) -> bool:
    """True if somebody set a bound of the ratio, and so wants a loss that clips."""
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


_SETTINGS = {CLIP_LOW: "clip_low", CLIP_HIGH: "clip_high", "beta": "dro_beta"}
"""By which a run sets the options of losses."""


@chz.chz
class LossSettings(Checked):
    """The loss over sampled tokens."""

    help_title = "Advantages and loss"

    loss_fn: str = computed(
        Default(
            lambda config: "ppo" if sets_clip(config) else "importance_sampling",
            "importance_sampling; ppo where clip_low or clip_high is set",
        ),
        str,
        f"Policy loss: {listed(POLICY_LOSSES, 'or')}. Or your own as module:name or file.py:name. ppo is the clipping "
        "of PPO: there is no critic.",
    )
    clip_low: float | None = chz.field(
        default=None,
        doc=f"Lower bound of the ratio, for {_with(CLIP_LOW)}.",
        validator=[bounded(BOUNDS[CLIP_LOW]), _read_with(CLIP_LOW)],
        metadata=facts(aliases=(_CLIP_EPSILON,)),
    )
    clip_high: float | None = chz.field(
        default=None,
        doc=f"Upper bound of the ratio, for {_with(CLIP_HIGH)}.",
        validator=[bounded(BOUNDS[CLIP_HIGH]), _read_with(CLIP_HIGH)],
    )
    dro_beta: float | None = chz.field(
        default=None,
        doc="Weight of dro's quadratic term.",
        validator=[bounded(BOUNDS["beta"]), _read_with("beta")],
    )
    compute_post_kl: bool = chz.field(
        default=False, doc="Report how far each step moved the weights from its sampler; costs a pass over the batch."
    )

    @property
    def policy_loss(self) -> PolicyLoss:
        """Facts about the loss."""
        return POLICY_LOSSES.get(self.loss_fn, PolicyLoss())

    @property
    def loss_fn_config(self) -> Mapping[str, float]:
        """Options to send with the service's loss: those that are set, by the service's names."""
        options = {option: getattr(self, setting) for option, setting in _SETTINGS.items()}
        return {name: value for name, value in options.items() if value is not None}

    @chz.validate
    def _options_teach(self) -> None:
        # Defaults of a service that are not known may leave room.
        check_options(self.loss_fn_config, self.policy_loss.published_options, _SETTINGS.__getitem__)


@chz.chz
class GradingSettings:
    """Settings of the grader of answers."""

    help_title = "Grading"

    grader: str = chz.field(
        default="math",
        doc="Of answers to mathematics: math (by value), exact (as text), or your own as module:name or file.py:name.",
    )


@chz.chz
class EnvironmentSettings(ModelSettings, SeedSettings, GroupSettings):
    """Settings from which environments are made."""


@chz.chz
class RolloutTrainingSettings(TrainingSettings, EnvironmentSettings, SamplingSettings, RolloutSettings):
    """Settings of every recipe that trains on what the present weights do in environments."""

    @property
    def num_draws(self) -> int:
        """Batches that a step may sample until it is full."""
        return 1

    @property
    def scores_sequences(self) -> bool:
        """True if somebody is asked for the logprobs of whole sequences."""
        return False


@chz.chz
class ReinforcementSettings(
    RolloutTrainingSettings,
    PoolSettings,
    OverlongSettings,
    UpdateSettings,
    AdvantageSettings,
    LossSettings,
):
    """Settings of every recipe that learns by reward."""

    @property
    def has_reference(self) -> bool:
        """True if divergence from a reference is measured."""
        return self.compute_kl or self.kl_coef > 0

    @property
    def num_draws(self) -> int:
        return self.max_batches_drawn if self.constant_reward_groups == "replace" else 1

    @property
    def scores_sequences(self) -> bool:
        return self.has_reference or self.policy_loss.reads_unsampled_tokens

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
        if size == 1 and self.constant_reward_groups != "keep":
            raise InputError(
                f"group_size is 1, and a group of one has one reward: constant_reward_groups="
                f"{self.constant_reward_groups} would leave none; set group_size to at least 2, or leave it out"
            )
        if least is not None and least > size:
            raise InputError(f"min_group_members is {least}, more than group_size={size}; no group could reach it")

    @chz.validate
    def _cache_is_part_of_the_answer(self) -> None:
        cache = self.overlong_cache_tokens
        if cache is not None and cache > self.max_tokens:
            raise InputError(
                f"overlong_cache_tokens={cache} is more than max_tokens={self.max_tokens}, of which they are the last"
            )

    @chz.validate
    def _loss_can_be_reduced(self) -> None:
        if self.reduction != "none" and not self.policy_loss.scales_with_advantages:
            raise InputError(
                f"reduction={self.reduction} divides advantages, and part of loss_fn={self.loss_fn} has none and would "
                "outweigh them; leave reduction out, or take another loss"
            )
