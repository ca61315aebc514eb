"""Figures over all datums of a batch: advantages normalized over its tokens, and the denominators of the loss.

The service sums a loss over all tokens that it is sent, so that what the sum is to be divided by is in the advantages.

Legend: T positions of a datum, D datums, R rollouts, M the sampled tokens of all datums end to end.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
import tinker

from cookhouse.rl.learning.assembly import with_advantages

Reduction: TypeAlias = Literal["none", "mean", "token_mean"]

_EPSILON = 1e-8


def normalize_advantages(data_D: Sequence[tinker.Datum]) -> list[tinker.Datum]:
    """Datums whose advantages are less their mean, over their standard deviation + 1e-8; both over the M sampled tokens
    and with the denominator M (https://arxiv.org/abs/2501.03262, section 3). In float64; 0 where no token was sampled.
    """
    masks_D = [datum.loss_fn_inputs["mask"].to_numpy() > 0 for datum in data_D]
    values_D = [datum.loss_fn_inputs["advantages"].to_numpy().astype(np.float64) for datum in data_D]
    parts = [values_T[mask_T] for values_T, mask_T in zip(values_D, masks_D, strict=True)]
    values_M = np.concatenate(parts or [np.zeros(0)])
    if not values_M.size:
        return list(data_D)
    mean, deviation = float(values_M.mean()), float(values_M.std())
    return [
        with_advantages(datum, np.where(mask_T, (values_T - mean) / (deviation + _EPSILON), 0.0))
        for datum, values_T, mask_T in zip(data_D, values_D, masks_D, strict=True)
    ]


def reduced(
    data_D: Sequence[tinker.Datum],
    reduction: Reduction,
    update_D: Sequence[tinker.Datum],
    num_datums_R: Sequence[int] | None = None,
) -> list[tinker.Datum]:
    """Datums whose advantages are divided by what makes the service's sum a mean. `update_D` are all those of their
    optimizer step, and `num_datums_R` how many of `data_D` each rollout has, in their order; None: one each.

    `none`: by 1, so that every token counts the same, and a batch as many times as it has tokens. `mean`: by the
    number of tokens sampled in the datum's rollout, so that every rollout counts 1, however many sequences it has
    (https://arxiv.org/abs/2402.03300, equation 3, where it has one). `token_mean`: by the number of sampled tokens of
    `update_D`, so that every token counts the same and the step 1 (https://arxiv.org/abs/2503.14476, equation 12).
    """
    if reduction == "none":
        return list(data_D)
    if reduction == "token_mean":
        num_tokens = sum(map(_num_sampled, update_D))
        return [_divided(datum, num_tokens) for datum in data_D]
    counts = map(_num_sampled, data_D)
    rollouts = [list(islice(counts, size)) for size in ([1] * len(data_D) if num_datums_R is None else num_datums_R)]
    denominators_D = [sum(rollout) for rollout in rollouts for _ in rollout]
    return [_divided(datum, denominator) for datum, denominator in zip(data_D, denominators_D, strict=True)]


def _num_sampled(datum: tinker.Datum) -> int:
    return int((datum.loss_fn_inputs["mask"].to_numpy() > 0).sum())


def _divided(datum: tinker.Datum, denominator: int) -> tinker.Datum:
    return with_advantages(datum, datum.loss_fn_inputs["advantages"].to_numpy().astype(np.float64) / denominator)
