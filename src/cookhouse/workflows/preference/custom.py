"""Losses over pairs that are computed here, from logprobs of the service, and metrics of pairs.

Legend: P pairs, D datums (chosen, rejected, chosen, ...), T positions.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.errors import InputError
from cookhouse.pair_losses import PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.loop.objective import Answered, custom_metrics
from cookhouse.training.work import Work
from cookhouse.workflows.preference.assembler import PairPayload

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class CustomPairLoss:
    """The mean of a loss over the pairs of a batch, and its gradient, computed here from the service's logprobs."""

    loss: PairLoss
    settings: PairLossSettings

    def metrics(self, parts: Answered[PairPayload]) -> Mapping[str, float]:
        """`pair_metrics`, under `train/`."""
        return custom_metrics(parts)

    def submit(self, client: TrainingClient, work: Work[PairPayload]) -> Awaitable[tinker.ForwardBackwardOutput]:
        def mean_loss(
            data_D: list[tinker.Datum], logprobs_D_T: "list[torch.Tensor]"
        ) -> "tuple[torch.Tensor, dict[str, float]]":
            pairs = pair_logprobs(data_D, logprobs_D_T, work.payload.reference_P2)
            loss = self.loss.function(pairs, self.settings).mean()
            return loss, pair_metrics(self.loss, self.settings, pairs, float(loss.detach()))

        return client.forward_backward_custom(list(work.data_D), mean_loss)


def pair_logprobs(
    data_D: Sequence[tinker.Datum], logprobs_D_T: "Sequence[torch.Tensor]", reference_P2: NDArray[np.float64]
) -> PairLogprobs:
    """Sums over the answers of interleaved datums, in double precision.

    Raises:
        InputError: datums that are not pairs, or logprobs that are not theirs.
    """
    import torch

    if len(data_D) % 2 or len(logprobs_D_T) != len(data_D) or reference_P2.shape != (len(data_D) // 2, 2):
        raise InputError(
            f"{len(data_D)} datums, {len(logprobs_D_T)} of them with logprobs, and {len(reference_P2)} pairs of a "
            "reference do not go together; a pair is two datums, chosen and rejected"
        )
    weights_D_T = [torch.tensor(datum.loss_fn_inputs["weights"].to_numpy()).double() for datum in data_D]
    sums_D = torch.stack([(w * lp.double()).sum() for w, lp in zip(weights_D_T, logprobs_D_T, strict=True)])
    return pairs_of_sums(sums_D, answer_tokens(data_D), reference_P2)


def answer_tokens(data_D: Sequence[tinker.Datum]) -> NDArray[np.float64]:
    """Σ w of each datum."""
    return np.array([datum.loss_fn_inputs["weights"].to_numpy().sum(dtype=np.float64) for datum in data_D])


def pairs_of_sums(
    sums_D: "torch.Tensor | NDArray[np.float64]", tokens_D: NDArray[np.float64], reference_P2: NDArray[np.float64]
) -> PairLogprobs:
    """What is known of pairs whose answers have these sums, interleaved."""
    import torch

    sums, tokens, reference = torch.as_tensor(sums_D), torch.from_numpy(tokens_D), torch.from_numpy(reference_P2)
    return PairLogprobs(
        chosen_P=sums[0::2],
        rejected_P=sums[1::2],
        reference_chosen_P=reference[:, 0],
        reference_rejected_P=reference[:, 1],
        chosen_tokens_P=tokens[0::2],
        rejected_tokens_P=tokens[1::2],
    )


def pair_metrics(loss: PairLoss, settings: PairLossSettings, pairs: PairLogprobs, mean_loss: float) -> dict[str, float]:
    """Figures of pairs, each a mean over them.

    `dpo_loss`, whichever the loss is; `accuracy`: the share whose chosen answer has the higher reward, a tie being
    half, also one within the rounding of the logprobs; `margin`: chosen less rejected reward; `chosen_reward` and
    `rejected_reward`: βΔ (see `PairLoss.rewards`); `chosen_logprob` and `rejected_logprob`: Σ w·logprob of an answer
    under the weights being trained; `chosen_tokens` and `rejected_tokens`: length of an answer.
    """
    chosen_P, rejected_P = (reward_P.detach() for reward_P in loss.rewards(pairs, settings))
    is_tie_P = (chosen_P - rejected_P).abs() <= _rounding(loss, settings, pairs)
    ahead_P = (chosen_P > rejected_P).double().masked_fill(is_tie_P, 0.5)
    means = {
        "accuracy": ahead_P,
        "margin": chosen_P - rejected_P,
        "chosen_reward": chosen_P,
        "rejected_reward": rejected_P,
        "chosen_logprob": pairs.chosen_P.detach(),
        "rejected_logprob": pairs.rejected_P.detach(),
        "chosen_tokens": pairs.chosen_tokens_P,
        "rejected_tokens": pairs.rejected_tokens_P,
    }
    return {"dpo_loss": mean_loss, **{name: float(values_P.mean()) for name, values_P in means.items()}}


def _rounding(loss: PairLoss, settings: PairLossSettings, pairs: PairLogprobs) -> "torch.Tensor":
    """By how much a reward of each pair is off, where its sums of logprobs are rounded as those of fp32 are."""
    import torch

    once = 1.0 + torch.finfo(torch.float32).eps
    moved = replace(pairs, chosen_P=pairs.chosen_P * once, rejected_P=pairs.rejected_P * once)
    rewards = zip(loss.rewards(pairs, settings), loss.rewards(moved, settings), strict=True)
    chosen_P, rejected_P = ((after_P - before_P).detach().abs() for before_P, after_P in rewards)
    return torch.maximum(chosen_P, rejected_P)
