"""Losses over pairs, as formulas: the same for whoever trains and for a service that computes them itself.

Of two answers to one prompt, one is preferred. Each loss is a function of sums over the tokens of an answer,
Σ w·logprob, under the weights being trained and under a reference, and of the number of those tokens.

Legend: P pairs.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class PairLossOptions(Protocol):
    """What the losses may be told."""

    @property
    def dpo_beta(self) -> float: ...

    @property
    def label_smoothing(self) -> float: ...

    @property
    def simpo_gamma(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class PairLogprobs:
    """Of the preferred (chosen) and the other (rejected) answer of each pair. The policy's carry a gradient."""

    chosen_P: "torch.Tensor"
    """Σ w·logprob over the answer's tokens, under the weights being trained."""
    rejected_P: "torch.Tensor"
    reference_chosen_P: "torch.Tensor"
    """The same under the reference; zeros for a loss that needs none."""
    reference_rejected_P: "torch.Tensor"
    chosen_tokens_P: "torch.Tensor"
    """Σ w: the tokens of each answer."""
    rejected_tokens_P: "torch.Tensor"

    @property
    def delta_chosen(self) -> "torch.Tensor":
        """Δ = Σ w·(logprob − reference), of the chosen answers."""
        return self.chosen_P - self.reference_chosen_P

    @property
    def delta_rejected(self) -> "torch.Tensor":
        return self.rejected_P - self.reference_rejected_P


def dpo(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
    """−log σ(β(Δc − Δr)), https://arxiv.org/abs/2305.18290, eq. 7.

    With label smoothing ε, (1 − ε) of it and ε of the loss with the answers exchanged: conservative DPO,
    https://ericmitchell.ai/cdpo.pdf.
    """
    return _sigmoid_loss(settings.dpo_beta * (pairs.delta_chosen - pairs.delta_rejected), settings)


def dpo_norm(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
    """DPO over means in place of sums: Δ of each answer divided by its tokens, https://arxiv.org/abs/2411.15124,
    section 5.1.
    """
    chosen_P = pairs.delta_chosen / pairs.chosen_tokens_P
    rejected_P = pairs.delta_rejected / pairs.rejected_tokens_P
    return _sigmoid_loss(settings.dpo_beta * (chosen_P - rejected_P), settings)


def ipo(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
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


def simpo(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
    """−log σ(β(mean logprob of chosen − of rejected) − γ), https://arxiv.org/abs/2405.14734, eq. 6; no reference."""
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    return _sigmoid_loss(settings.dpo_beta * (chosen_P - rejected_P) - settings.simpo_gamma, settings)


def orpo(pairs: PairLogprobs, settings: PairLossOptions) -> "torch.Tensor":
    """NLL of the chosen answer, a mean over its tokens, and β times −log σ of the log odds ratio of both answers' mean
    logprobs, https://arxiv.org/abs/2403.07691, eq. 6 and 7, with its λ as β; no reference.
    """
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    ratio_P = _log_odds(chosen_P) - _log_odds(rejected_P)
    return -chosen_P + settings.dpo_beta * _sigmoid_loss(ratio_P, settings)


def _sigmoid_loss(logits_P: "torch.Tensor", settings: PairLossOptions) -> "torch.Tensor":
    from torch.nn.functional import logsigmoid

    smoothing = settings.label_smoothing
    return -(1.0 - smoothing) * logsigmoid(logits_P) - smoothing * logsigmoid(-logits_P)


def _log_odds(logprob_P: "torch.Tensor") -> "torch.Tensor":
    """log(p / (1 − p)) of a logprob; exact also where p is near 0 or 1. At p = 1 it would be infinite: 1 − p is taken
    to be at least 1e-12.
    """
    import torch

    return logprob_P - torch.log(-torch.expm1(logprob_P.clamp(max=-1e-12)))
