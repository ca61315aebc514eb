"""Metrics of pairs, computed in NumPy from sums of logprobs: where the service computes the loss, no torch is needed
here.

Legend: P pairs, D datums (chosen, rejected, chosen, ...), T positions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.errors import InputError
from cookhouse.losses.pair_losses import Array, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings

ArrayPairs: TypeAlias = PairLogprobs[NDArray[np.float64]]
_ONCE = 1.0 + float(np.finfo(np.float32).eps)


def pairs_of_sums(sums_D: Array, tokens_D: Array, reference_P2: Array) -> PairLogprobs[Array]:
    """Logprobs of pairs whose answers have these sums, interleaved."""
    return PairLogprobs(
        chosen_P=sums_D[0::2],
        rejected_P=sums_D[1::2],
        reference_chosen_P=reference_P2[:, 0],
        reference_rejected_P=reference_P2[:, 1],
        chosen_tokens_P=tokens_D[0::2],
        rejected_tokens_P=tokens_D[1::2],
    )


def pairs_of_logprobs(
    data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[NDArray[Any]], reference_P2: NDArray[np.float64]
) -> ArrayPairs:
    """Sums over the answers of interleaved datums, in double precision. Raises as `check_pairs`."""
    check_pairs(data_D, logprobs_D_T, reference_P2)
    sums_D = [_sum(*each) for each in zip(answer_weights(data_D), logprobs_D_T, strict=True)]
    return pairs_of_sums(np.array(sums_D), answer_tokens(data_D), reference_P2)


def _sum(weights_T: NDArray[np.float64], logprobs_T: NDArray[Any]) -> float:
    # Where no weight is, a logprob may be of anything, also minus infinity.
    is_trained_T = weights_T != 0
    return float(np.sum(weights_T[is_trained_T] * logprobs_T.reshape(weights_T.shape)[is_trained_T].astype(np.float64)))


def check_pairs(
    data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[object], reference_P2: NDArray[np.float64]
) -> None:
    """Raises InputError: datums that are not pairs, or logprobs that are not theirs."""
    if len(data_D) % 2 or len(logprobs_D_T) != len(data_D) or reference_P2.shape != (len(data_D) // 2, 2):
        raise InputError(
            f"{len(data_D)} datums, {len(logprobs_D_T)} of them with logprobs, and {len(reference_P2)} pairs of a "
            "reference do not go together; a pair is two datums, chosen and rejected"
        )


def answer_weights(data_D: Sequence[tinker.Datum]) -> list[NDArray[np.float64]]:
    """W of each datum, by target."""
    return [datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64) for datum in data_D]


def answer_tokens(data_D: Sequence[tinker.Datum]) -> NDArray[np.float64]:
    """Σ w of each datum."""
    return np.array([weights_T.sum() for weights_T in answer_weights(data_D)])


def mean_loss(loss: PairLoss, settings: PairLossSettings, pairs: ArrayPairs) -> float:
    """Of all the pairs; a loss that takes no arrays is given tensors."""
    if loss.takes_arrays:
        return float(loss.function(pairs, settings).mean())
    import torch

    tensors = {name: torch.as_tensor(values_P) for name, values_P in vars(pairs).items()}
    return float(loss.function(PairLogprobs(**tensors), settings).mean())


def pair_metrics(loss: PairLoss, settings: PairLossSettings, pairs: ArrayPairs, mean_loss: float) -> dict[str, float]:
    """Figures of pairs, each a mean over them.

    `dpo_loss`, whichever the loss is; `accuracy`: the share whose chosen answer has the higher reward, a tie being
    half, also one within the rounding of the logprobs; `margin`: chosen less rejected reward; `chosen_reward` and
    `rejected_reward`: βΔ (see `PairLoss.rewards`); `chosen_logprob` and `rejected_logprob`: Σ w·logprob of an answer
    under the weights being trained; `chosen_tokens` and `rejected_tokens`: length of an answer.
    """
    chosen_P, rejected_P = loss.rewards(pairs, settings)
    is_tie_P = np.abs(chosen_P - rejected_P) <= _rounding(loss, settings, pairs)
    means = {
        "accuracy": np.where(is_tie_P, 0.5, chosen_P > rejected_P),
        "margin": chosen_P - rejected_P,
        "chosen_reward": chosen_P,
        "rejected_reward": rejected_P,
        "chosen_logprob": pairs.chosen_P,
        "rejected_logprob": pairs.rejected_P,
        "chosen_tokens": pairs.chosen_tokens_P,
        "rejected_tokens": pairs.rejected_tokens_P,
    }
    return {"dpo_loss": mean_loss, **{name: float(values_P.mean()) for name, values_P in means.items()}}


def _rounding(loss: PairLoss, settings: PairLossSettings, pairs: ArrayPairs) -> NDArray[np.float64]:
    """By how much a reward of each pair is off, where its sums of logprobs are rounded as those of fp32 are."""
    moved = replace(pairs, chosen_P=pairs.chosen_P * _ONCE, rejected_P=pairs.rejected_P * _ONCE)
    rewards = zip(loss.rewards(pairs, settings), loss.rewards(moved, settings), strict=True)
    chosen_P, rejected_P = (np.abs(after_P - before_P) for before_P, after_P in rewards)
    return np.maximum(chosen_P, rejected_P)
