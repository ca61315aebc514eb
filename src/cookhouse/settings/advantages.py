"""Settings of how rewards become advantages."""

from collections.abc import Mapping
from typing import Any, Literal

import chz

from cookhouse.errors import InputError
from cookhouse.settings.checks import at_least, between
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.reading import read_if
from cookhouse.settings.rollouts import EpisodeShape

_OF_TOTAL_REWARDS = ("group_centered", "normalized", "leave_one_out", "total_reward", "none")
_OF_TURNS = (
    read_if(lambda config: config.advantage not in _OF_TOTAL_REWARDS, "with advantage=gae"),
    read_if(
        lambda config: config.advantage != "gae" or config.has_several_turns,
        "in episodes of several turns, and here each has one",
    ),
)


def _constant_groups(removed: Any) -> Mapping[str, Any]:
    known = {"true": "remove", "false": "keep"}
    if str(removed).lower() not in known:
        raise InputError(f"remove_constant_reward_groups is {removed!r}; it must be true or false")
    return {"constant_reward_groups": known[str(removed).lower()]}


_REMOVE_CONSTANT = Alias(name="remove_constant_reward_groups", convert=_constant_groups, doc="tinker-cookbook")


@chz.chz
class AdvantageSettings(EpisodeShape):
    """Settings by which rewards become advantages."""

    help_title = "Advantages and loss"

    advantage: str = chz.field(
        default="group_centered",
        doc="group_centered, normalized, leave_one_out, total_reward (no baseline), gae (the group's mean as the "
        "value; there is no critic), none (rewards teach nothing), or your own as module:name or file.py:name.",
    )
    gamma: float = chz.field(
        default=0.99, doc="Discount of later rewards, for gae.", validator=[between(0, 1), *_OF_TURNS]
    )
    gae_lambda: float = chz.field(
        default=0.95, doc="Weight of longer estimates, for gae.", validator=[between(0, 1), *_OF_TURNS]
    )
    advantage_normalization: Literal["none", "batch"] = chz.field(
        default="none",
        doc="batch: subtract the mean over the tokens of the batch from advantages, penalties included, and divide by "
        "their standard deviation.",
    )
    constant_reward_groups: Literal["keep", "remove", "replace"] = chz.field(
        default="keep",
        doc="Groups with one reward for all. keep: they are trained on; remove: they are left out; replace: groups of "
        "further problems take their places until the batch is full.",
        metadata=facts(aliases=(_REMOVE_CONSTANT,)),
    )
    max_batches_drawn: int = chz.field(
        default=10,
        doc="Batches of problems that a step may sample, at most, until it is full.",
        validator=[
            at_least(2),
            read_if(lambda config: config.constant_reward_groups == "replace", "by constant_reward_groups=replace"),
        ],
    )
    kl_coef: float = chz.field(
        default=0.0,
        doc="Penalty for leaving the reference; 0: none.",
        validator=at_least(0),
        metadata=facts(aliases=(Alias(name="kl_penalty_coef", doc="tinker-cookbook"),)),
    )
    compute_kl: bool = chz.field(
        default=False,
        doc="Report the divergence from the reference also where kl_coef is 0; costs a pass over a batch.",
        validator=read_if(lambda config: not config.kl_coef, "where kl_coef is 0", idle=[False]),
    )
    kl_gamma: float = chz.field(
        default=0.0,
        doc="Discount of later tokens' penalties; 0: each token has its own.",
        validator=[between(0, 1), read_if(lambda config: config.kl_coef, "with kl_coef above 0", idle=[0])],
        metadata=facts(aliases=(Alias(name="kl_discount_factor", doc="tinker-cookbook"),)),
    )
    kl_reference: str | None = chz.field(
        default=None,
        doc="What divergence is from: a base model, or weights as in load_checkpoint_path; default: the weights that "
        "the run began with.",
        validator=read_if(
            lambda config: config.kl_coef or config.compute_kl, "with kl_coef above 0, or with compute_kl=true"
        ),
        metadata=facts(
            weights=NamesWeights(in_own_format=True),
            aliases=(Alias(name="reference_model_name", doc="TinkexCookbook"),),
        ),
    )
