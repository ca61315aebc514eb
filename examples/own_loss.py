"""A loss of one's own: cross-entropy that cares more for tokens that the model finds unlikely.

    cookhouse run supervised loss_fn=examples/own_loss.py:focal

The focal loss, -(1 - p)^2 log p, of https://arxiv.org/abs/1708.02002, for tokens in place of pixels. The gradient is
computed here, from the logprobs that the service sends back.
"""

import tinker
import torch

from cookhouse import Metric, declare_metric

GAMMA = 2.0
MEAN_PROBABILITY = declare_metric(
    Metric("mean_probability", direction="more", is_share=True, chart=15, line="probability {:.1%}")
)
"""Above all other charts but the loss, and in the terminal's line of each step."""


def focal(data: list[tinker.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    """Sum over all tokens of weight · -(1 - p)^γ log p, and the mean p of what is trained on."""
    loss, likely, total_weight = torch.zeros(()), 0.0, 0.0
    for datum, logprobs_T in zip(data, logprobs, strict=True):
        weights_T = torch.from_numpy(datum.loss_fn_inputs["weights"].to_numpy())
        p_T = logprobs_T.exp()
        loss = loss - (weights_T * (1.0 - p_T) ** GAMMA * logprobs_T).sum()
        likely += float((weights_T * p_T.detach()).sum())
        total_weight += float(weights_T.sum())
    return loss, {MEAN_PROBABILITY: likely / total_weight}
