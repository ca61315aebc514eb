"""The losses over pairs that a run may be told, by name, and what each of them needs.

Every loss is the mean over the pairs that it is given.

Legend: P pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cookhouse import pair_losses
from cookhouse.naming import OpenSet
from cookhouse.pair_losses import PairLogprobs
from cookhouse.settings import PairLossSettings

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class PairLoss:
    """A loss over pairs, and what it needs."""

    function: "Callable[[PairLogprobs, PairLossSettings], torch.Tensor]"
    """Of P pairs: the loss of each, whose mean is trained on."""
    needs_reference: bool = True
    is_per_token: bool = False
    """Whether it compares means over the tokens of an answer, so that its rewards are such means, too."""

    def rewards(self, pairs: PairLogprobs, settings: PairLossSettings) -> "tuple[torch.Tensor, torch.Tensor]":
        """Of the chosen and of the rejected answers: βΔ, or βΔ over the answer's tokens."""
        chosen_P, rejected_P = settings.dpo_beta * pairs.delta_chosen, settings.dpo_beta * pairs.delta_rejected
        if self.is_per_token:
            return chosen_P / pairs.chosen_tokens_P, rejected_P / pairs.rejected_tokens_P
        return chosen_P, rejected_P


def _as_loss(thing: Any) -> PairLoss | None:
    if isinstance(thing, PairLoss):
        return thing
    return PairLoss(function=thing) if callable(thing) else None


DPO = PairLoss(function=pair_losses.dpo)
DPO_NORM = PairLoss(function=pair_losses.dpo_norm, is_per_token=True)
IPO = PairLoss(function=pair_losses.ipo)
KTO = PairLoss(function=pair_losses.kto)
ORPO = PairLoss(function=pair_losses.orpo, needs_reference=False, is_per_token=True)
SIMPO = PairLoss(function=pair_losses.simpo, needs_reference=False, is_per_token=True)

PAIR_LOSSES: OpenSet[PairLoss] = OpenSet(
    kind="preference loss",
    group="cookhouse.preference_losses",
    builtin={name: f"{__name__}:{name.upper()}" for name in ("dpo", "dpo_norm", "ipo", "kto", "orpo", "simpo")},
    check=_as_loss,
    wants="a preference loss is a function of PairLogprobs and PairLossSettings that returns the loss of each pair, or "
    "a PairLoss around one",
    takes=("pairs", "settings"),
    function_of=lambda loss: loss.function,
)
"""Losses over pairs. A function alone is taken to need the reference, and to compare sums over tokens."""
