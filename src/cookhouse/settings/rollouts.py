"""Settings of rollouts: sampling, limits, failures, and answers that are too long."""

from typing import Literal

import chz

from cookhouse.settings.checks import above, at_least
from cookhouse.settings.judge import WITH_HELD_OUT
from cookhouse.settings.reading import read_if


@chz.chz
class SamplingSettings:
    """Settings by which tokens are drawn. At temperature 1 their logprobs are the trainer's."""

    help_title = "Rollouts"

    max_tokens: int = chz.field(default=256, doc="Tokens sampled per turn, at most.", validator=at_least(1))
    temperature: float = chz.field(
        default=1.0,
        doc="Sampling temperature. At 1 the sampler's logprobs are the trainer's.",
        validator=above(0, "1; at 0 the rollouts of a group would all be the same, and nothing could be learned"),
    )
    eval_temperature: float = chz.field(
        default=1.0, doc="Of sampling in evaluations; 0 is greedy.", validator=[at_least(0), WITH_HELD_OUT]
    )


@chz.chz
class OverlongSettings(SamplingSettings):
    """Settings for answers that are cut at the limit of their tokens, or come near it."""

    help_title = "Rollouts"

    overlong_answers: Literal["keep", "mask", "punish"] = chz.field(
        default="keep",
        doc="Answers cut at max_tokens or at max_sequence_tokens. keep: nothing is done; mask: they are left out of "
        "the loss; punish: reward is taken from them and from those that nearly were.",
    )
    overlong_cache_tokens: int | None = chz.field(
        default=None,
        doc="The last so many of max_tokens, over which the punishment grows from 0 to 1; default: a fifth of them.",
        validator=[
            at_least(1),
            read_if(lambda config: config.overlong_answers == "punish", "by overlong_answers=punish"),
        ],
    )

    @property
    def overlong_cache(self) -> int:
        """`overlong_cache_tokens`, also where nobody set them: the published share, 4,096 of 20,480."""
        return max(1, self.max_tokens // 5) if self.overlong_cache_tokens is None else self.overlong_cache_tokens


class EpisodeShape:
    """Features that episodes may have, as far as the settings show; a recipe says so by properties of its config."""

    @property
    def has_several_turns(self) -> bool:
        """True if an episode may have more turns than one."""
        return True

    @property
    def has_tools(self) -> bool:
        """True if an episode may call tools: one that goes on after a call."""
        return self.has_several_turns


@chz.chz
class RolloutLimits(EpisodeShape):
    """Limits that end an episode from outside; None is no limit.

    An episode that reaches one has the `stop_reason` `max_turns`, `max_tokens` or `max_tool_calls`, unless the
    environment ended it as well. `max_sequence_tokens` is of any one sequence, the prompt and what is sampled after it:
    a turn gets what its prompt leaves, and the episode ends where that is nothing. The turn whose calls go past
    `max_tool_calls` is the last.
    """

    help_title = "Rollouts"

    max_turns: int | None = chz.field(
        default=None,
        doc="Turns of an episode; default: the environment's end.",
        validator=[
            at_least(1),
            read_if(lambda config: config.has_several_turns, "in episodes of several turns, and here each has one"),
        ],
    )
    max_sequence_tokens: int | None = chz.field(
        default=None, doc="Tokens of an episode, prompts included; default: no limit.", validator=at_least(2)
    )
    max_tool_calls: int | None = chz.field(
        default=None,
        doc="Tool calls of an episode; default: no limit.",
        validator=[
            at_least(0),
            read_if(lambda config: config.has_tools, "where tools can be called, and here none can"),
        ],
    )


@chz.chz
class RolloutStrategy:
    """Number of attempts for a member of a group, and of members that the group cannot do without.

    Each attempt has a fresh environment. A member that failed its last one is dropped while `min_group_members` can
    still finish. Members that play with each other (`cookhouse.rl.CoupledBuilder`) are attempted again, and dropped,
    together. What fails for the whole group (`make_envs` at first, `compute_group_rewards`) fails it at once.
    """

    help_title = "Rollouts"

    rollout_attempts: int = chz.field(default=1, doc="Attempts at a rollout that fails.", validator=at_least(1))
    min_group_members: int | None = chz.field(
        default=None, doc="Rollouts that a group cannot do without; default: all of them.", validator=at_least(1)
    )


@chz.chz
class RolloutSettings(RolloutLimits, RolloutStrategy):
    """Rollouts of groups: how long, how many at a time, and what becomes of failures."""

    help_title = "Rollouts"

    on_failed_group: Literal["stop", "skip"] = chz.field(
        default="stop", doc="Whether a group that fails ends the run or is left out of its step."
    )
    max_concurrent_groups: int = chz.field(default=256, doc="Groups being rolled out at a time.", validator=at_least(1))


@chz.chz
class PoolSettings(RolloutSettings):
    """Rollouts of several steps at a time."""

    help_title = "Rollouts"

    max_steps_off_policy: int = chz.field(
        default=0, doc="Steps that rollouts may run ahead of training; 0: they never do.", validator=at_least(0)
    )
