"""Losses over pairs: their formulas, and what settings, workflows and a service that computes them know of each.

Of two answers to one prompt, one is preferred. Each loss is a function of sums over the tokens of an answer,
Σ w·logprob, under the weights being trained and under a reference, and of the number of those tokens. A run trains on
its mean over the pairs. Reading this module loads no torch, and the formulas that a service may compute take NumPy's
arrays, too: metrics of what it has computed need none either.

Legend: P pairs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from cookhouse.errors import UnknownNameError
from cookhouse.losses.bounds import NOT_NEGATIVE, POSITIVE, Bound
from cookhouse.naming import OpenSet

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from typing_extensions import TypeVar

    Array = TypeVar("Array", torch.Tensor, NDArray[np.float64], default=torch.Tensor)
else:
    from typing import TypeVar

    Array = TypeVar("Array")

DEFAULT_BETA = 0.1
OPTIONS: Mapping[str, float] = {"label_smoothing": 0.0, "simpo_gamma": 1.0}
"""Settings that a loss may read besides β, and what they are where nobody sets them."""
BOUNDS: Mapping[str, Bound] = {
    "dpo_beta": POSITIVE,
    "label_smoothing": Bound(high=0.5),
    "simpo_gamma": NOT_NEGATIVE,
}
"""What each of them may be, and β."""


class PairLossOptions(Protocol):
    """Options of the losses: β and `OPTIONS`."""

    @property
    def dpo_beta(self) -> float: ...

    @property
    def label_smoothing(self) -> float: ...

    @property
    def simpo_gamma(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class PairLogprobs(Generic[Array]):
    """Of the preferred (chosen) and the other (rejected) answer of each pair. A loss is given tensors, of which the
    policy's carry a gradient; metrics are computed of NumPy's arrays.
    """

    chosen_P: Array
    """Σ w·logprob over the answer's tokens, under the weights being trained."""
    rejected_P: Array
    reference_chosen_P: Array
    """The same under the reference; zeros for a loss that needs none."""
    reference_rejected_P: Array
    chosen_tokens_P: Array
    """Σ w: the tokens of each answer."""
    rejected_tokens_P: Array

    @property
    def delta_chosen(self) -> Array:
        """Δ = Σ w·(logprob − reference), of the chosen answers."""
        return self.chosen_P - self.reference_chosen_P

    @property
    def delta_rejected(self) -> Array:
        return self.rejected_P - self.reference_rejected_P


def dpo(pairs: PairLogprobs[Array], settings: PairLossOptions) -> Array:
    """−log σ(β(Δc − Δr)), https://arxiv.org/abs/2305.18290, eq. 7.

    With label smoothing ε, (1 − ε) of it and ε of the loss with the answers exchanged: conservative DPO,
    https://ericmitchell.ai/cdpo.pdf.
    """
    return _sigmoid_loss(settings.dpo_beta * (pairs.delta_chosen - pairs.delta_rejected), settings)


def dpo_norm(pairs: PairLogprobs[Array], settings: PairLossOptions) -> Array:
    """DPO over means in place of sums: Δ of each answer divided by its tokens, https://arxiv.org/abs/2411.15124,
    section 5.1.
    """
    chosen_P = pairs.delta_chosen / pairs.chosen_tokens_P
    rejected_P = pairs.delta_rejected / pairs.rejected_tokens_P
    return _sigmoid_loss(settings.dpo_beta * (chosen_P - rejected_P), settings)


def ipo(pairs: PairLogprobs[Array], settings: PairLossOptions) -> Array:
    """(Δc − Δr − 1/(2β))², https://arxiv.org/abs/2310.12036, eq. 17, with its τ as β."""
    return (pairs.delta_chosen - pairs.delta_rejected - 1.0 / (2.0 * settings.dpo_beta)) ** 2


def kto(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
    """½(1 − σ(β(Δc − z))) + ½(1 − σ(β(z − Δr))), https://arxiv.org/abs/2402.01306, eq. 8, with weights of 1.

    z, which has no gradient, is the KL divergence from the reference. The paper estimates it from answers to other
    prompts of the batch; here, where answers come in pairs, it is the mean Δ of the batch's answers of the other kind,
    at least 0.
    """
    kl_chosen = pairs.delta_chosen.detach().mean().clamp(min=0)
    kl_rejected = pairs.delta_rejected.detach().mean().clamp(min=0)
    gain_P = (settings.dpo_beta * (pairs.delta_chosen - kl_rejected)).sigmoid()
    loss_P = (settings.dpo_beta * (kl_chosen - pairs.delta_rejected)).sigmoid()
    return 0.5 * (1.0 - gain_P) + 0.5 * (1.0 - loss_P)


def simpo(pairs: PairLogprobs[Array], settings: PairLossOptions) -> Array:
    """−log σ(β(mean logprob of chosen − of rejected) − γ), https://arxiv.org/abs/2405.14734, eq. 6; no reference."""
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    return _sigmoid_loss(settings.dpo_beta * (chosen_P - rejected_P) - settings.simpo_gamma, settings)


def orpo(pairs: PairLogprobs[Array], settings: PairLossOptions) -> Array:
    """NLL of the chosen answer, a mean over its tokens, and β times −log σ of the log odds ratio of both answers' mean
    logprobs, https://arxiv.org/abs/2403.07691, eq. 6 and 7, with its λ as β; no reference.
    """
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    ratio_P = _log_odds(chosen_P) - _log_odds(rejected_P)
    return -chosen_P + settings.dpo_beta * _sigmoid_loss(ratio_P, settings)


def _sigmoid_loss(logits_P: Array, settings: PairLossOptions) -> Array:
    smoothing = settings.label_smoothing
    return -(1.0 - smoothing) * _log_sigmoid(logits_P) - smoothing * _log_sigmoid(-logits_P)


def _log_sigmoid(logits_P: Array) -> Array:
    import numpy as np

    if isinstance(logits_P, np.ndarray):
        return -np.logaddexp(0.0, -logits_P)
    from torch.nn.functional import logsigmoid

    return logsigmoid(logits_P)


def _log_odds(logprob_P: Array) -> Array:
    """log(p / (1 − p)) of a logprob; exact also where p is near 0 or 1. At p = 1 it would be infinite: 1 − p is taken
    to be at least 1e-12.
    """
    import numpy as np

    if isinstance(logprob_P, np.ndarray):
        return logprob_P - np.log(-np.expm1(np.minimum(logprob_P, -1e-12)))
    import torch

    return logprob_P - torch.log(-torch.expm1(logprob_P.clamp(max=-1e-12)))


@dataclass(frozen=True, kw_only=True)
class PairLoss:
    """A loss over pairs, and what is known of it. The defaults are what a function alone has.

    Raises:
        UnknownNameError: `reads` names what is no option.
    """

    function: "Callable[[PairLogprobs[Any], Any], Any]"
    """Of P pairs, as tensors, and `PairLossOptions`: the loss of each."""
    takes_arrays: bool = False
    """Whether the function computes the same of NumPy's arrays, so that held-out pairs need no torch."""
    needs_reference: bool = True
    """If not, none is opened, and the reference's logprobs are zeros."""
    is_per_token: bool = False
    """Whether it compares means over the tokens of an answer, so that its rewards are such means, too."""
    compares_answers: bool = False
    """Whether it compares the two answers of one prompt. Rows that judge single answers are then refused."""
    compares_batch: bool = False
    """Whether a pair's loss depends on the others of its batch. No service computes such a loss: the gradient of the
    first pass could not be known before the last."""
    default_beta: float = DEFAULT_BETA
    """`dpo_beta` where nobody sets it."""
    reads: tuple[str, ...] = tuple(OPTIONS)
    """Of `OPTIONS`, those that change it. The others are refused where somebody sets them."""

    def __post_init__(self) -> None:
        for name in self.reads:
            if name not in OPTIONS:
                raise UnknownNameError("option of losses over pairs", name, OPTIONS)

    @property
    def options(self) -> Mapping[str, float]:
        """The settings that it reads, with their defaults."""
        return {"dpo_beta": self.default_beta, **{name: OPTIONS[name] for name in self.reads}}

    def rewards(self, pairs: PairLogprobs[Array], settings: PairLossOptions) -> tuple[Array, Array]:
        """Of the chosen and of the rejected answers: βΔ, or βΔ over the answer's tokens."""
        chosen_P, rejected_P = settings.dpo_beta * pairs.delta_chosen, settings.dpo_beta * pairs.delta_rejected
        if self.is_per_token:
            return chosen_P / pairs.chosen_tokens_P, rejected_P / pairs.rejected_tokens_P
        return chosen_P, rejected_P


_SMOOTHED = ("label_smoothing",)

BUILT_IN_PAIR_LOSSES: Mapping[str, PairLoss] = {
    "dpo": PairLoss(function=dpo, takes_arrays=True, compares_answers=True, reads=_SMOOTHED),
    "dpo_norm": PairLoss(
        function=dpo_norm, takes_arrays=True, is_per_token=True, compares_answers=True, reads=_SMOOTHED
    ),
    "ipo": PairLoss(function=ipo, takes_arrays=True, compares_answers=True, reads=()),
    "kto": PairLoss(function=kto, compares_batch=True, reads=()),
    "orpo": PairLoss(
        function=orpo,
        takes_arrays=True,
        needs_reference=False,
        is_per_token=True,
        compares_answers=True,
        reads=_SMOOTHED,
    ),
    "simpo": PairLoss(
        function=simpo,
        takes_arrays=True,
        needs_reference=False,
        is_per_token=True,
        compares_answers=True,
        default_beta=2.0,
    ),
}


def _as_loss(thing: Any) -> PairLoss | None:
    if isinstance(thing, PairLoss):
        return thing
    return PairLoss(function=thing) if callable(thing) else None


PAIR_LOSSES: OpenSet[PairLoss] = OpenSet(
    kind="preference loss",
    group="cookhouse.preference_losses",
    builtin={},
    check=_as_loss,
    wants="a preference loss is a function of PairLogprobs and PairLossSettings that returns the loss of each pair, or "
    "a PairLoss around one",
    takes=("pairs", "settings"),
    function_of=lambda loss: loss.function,
)
"""`BUILT_IN_PAIR_LOSSES` and those of users."""

for _name, _loss in BUILT_IN_PAIR_LOSSES.items():
    PAIR_LOSSES.register(_name, _loss)
