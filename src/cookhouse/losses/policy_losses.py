"""The service's losses over sampled tokens, as facts: what settings, workflows and whoever computes them know by name.

https://tinker-docs.thinkingmachines.ai/losses
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cookhouse.errors import InputError
from cookhouse.losses.bounds import NOT_NEGATIVE, POSITIVE, Bound

CLIP_LOW, CLIP_HIGH = "clip_low_threshold", "clip_high_threshold"
"""Options: bounds of the ratio itself. The lower one is to be below the upper one."""
BOUNDS: Mapping[str, Bound] = {
    CLIP_LOW: NOT_NEGATIVE,
    CLIP_HIGH: POSITIVE,
    "beta": NOT_NEGATIVE,
    "kl_coeff": NOT_NEGATIVE,
}
"""What each option may be, of every loss that has it."""


@dataclass(frozen=True, kw_only=True)
class PolicyLoss:
    """Facts about a loss over sampled tokens. The defaults are what a function of a user's own has."""

    ratio: Literal["token", "sequence"] | None = None
    """New over old probability, which weighs the advantages: one for each token, or one for the datum. None: no ratio
    is known of."""
    options: Mapping[str, float] = field(default_factory=dict)
    """The options that the service takes with it, of `BOUNDS`, and what our own service takes where nobody says."""
    are_defaults_published: bool = True
    """Whether the hosted service takes the same."""
    mask_input: str | None = None
    """The input that says which tokens were sampled, if it has one."""
    reads_unsampled_tokens: bool = False
    """Whether tokens that were not sampled count, whatever their advantage: they need old logprobs, too."""

    scales_with_advantages: bool = True
    """Whether it is divided by what advantages are divided by, so that they can hold its denominator."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Of a datum, besides its targets."""
        return ("logprobs", "advantages", *([] if self.mask_input is None else [self.mask_input]))

    @property
    def published_options(self) -> Mapping[str, float]:
        """Options whose defaults are known of every service."""
        return self.options if self.are_defaults_published else {}

    @property
    def has_unbounded_ratio(self) -> bool:
        """True if a few large ratios can decide a step."""
        return self.ratio is not None and not {CLIP_LOW, CLIP_HIGH} & self.options.keys()


def check_options(
    given: Mapping[str, float], known: Mapping[str, float], called: Callable[[str], str] = lambda option: option
) -> None:
    """Refuse options with which a loss would teach nothing, or the opposite.

    Args:
        given: what somebody set.
        known: what the others are, as far as it is known.
        called: what an option is called where it was set.

    Raises:
        InputError: one of `given` is out of its bounds, or the two bounds of the ratio leave nothing between them.
    """
    for option, value in given.items():
        BOUNDS[option].check(called(option), value)
    values = {**known, **given}
    low, high = values.get(CLIP_LOW), values.get(CLIP_HIGH)
    if low is not None and high is not None and low >= high and {CLIP_LOW, CLIP_HIGH} & given.keys():
        said = {option: "" if option in given else " (the default)" for option in (CLIP_LOW, CLIP_HIGH)}
        raise InputError(
            f"{called(CLIP_LOW)}={low}{said[CLIP_LOW]} must be below {called(CLIP_HIGH)}={high}{said[CLIP_HIGH]}"
        )


POLICY_LOSSES: Mapping[str, PolicyLoss] = {
    "importance_sampling": PolicyLoss(ratio="token"),
    "ppo": PolicyLoss(ratio="token", options={CLIP_LOW: 0.8, CLIP_HIGH: 1.2}),
    "cispo": PolicyLoss(ratio="token", options={CLIP_LOW: 0.0, CLIP_HIGH: 4.0}),
    # The default is the one of the hosted service's examples.
    "dro": PolicyLoss(
        options={"beta": 0.05},
        are_defaults_published=False,
        reads_unsampled_tokens=True,
        scales_with_advantages=False,
    ),
    # The defaults are the paper's, https://arxiv.org/abs/2507.18071, section 5.1.
    "gspo": PolicyLoss(
        ratio="sequence",
        options={CLIP_LOW: 1 - 3e-4, CLIP_HIGH: 1 + 4e-4},
        are_defaults_published=False,
        mask_input="sequence_ratio_mask",
    ),
}

STABLE_REINFORCE = "stable_reinforce"
OWN_LOSSES: Mapping[str, PolicyLoss] = {
    # Both values are common ones: https://fengyao.notion.site/off-policy-rl truncates ratios at 2.
    STABLE_REINFORCE: PolicyLoss(
        ratio="token",
        options={"kl_coeff": 0.05, CLIP_HIGH: 2.0},
        are_defaults_published=False,
        mask_input="is_sampled",
    )
}
"""Objectives of ours for losses of the hosted service's whose own is not published. A server computes them where its
operator has said so, for programs that ask for them by name; no recipe of ours does."""
