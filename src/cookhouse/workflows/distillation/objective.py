"""Learning what a teacher says: its likelihood, and how far from the teacher's own that is."""

from typing import Any

import numpy as np

from cookhouse.telemetry import keys
from cookhouse.training.loop.objective import Answered, Objective, ServiceLoss, answered_datums

FORWARD_KL = "train/forward_kl"


def taught_objective(*, has_teacher_logprobs: bool) -> Objective[None]:
    """Cross-entropy. `has_teacher_logprobs`: those of the answers are of what was sampled from, at temperature 1."""
    return Objective(
        loss=ServiceLoss(name="cross_entropy"), metrics=lambda parts: taught_metrics(parts, has_teacher_logprobs)
    )


def taught_metrics(parts: Answered[Any], has_teacher_logprobs: bool = True) -> dict[str, float]:
    """`train/loss`, a mean over the tokens of answers in nats, and token counts; and `train/forward_kl`, the divergence
    of the student from the teacher at these tokens: exactly that from its K most likely tokens where these are the
    targets, else an estimate by what it sampled, if its logprobs are there.
    """
    loss = divergence = 0.0
    num_trained = num_compared = 0
    for datum, fields in answered_datums(parts):
        weights = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
        logprobs = fields["logprobs"].to_numpy().astype(np.float64).reshape(weights.shape)
        trained = weights != 0
        nll = -float(np.sum(weights[trained] * logprobs[trained]))
        count = int(np.count_nonzero(trained.any(axis=-1) if weights.ndim == 2 else trained))
        loss, num_trained = loss + nll, num_trained + count
        if weights.ndim == 2:
            divergence += nll + float(np.sum(weights[trained] * np.log(weights[trained])))
            num_compared += count
        elif has_teacher_logprobs and "teacher_logprobs" in datum.loss_fn_inputs:
            teacher = datum.loss_fn_inputs["teacher_logprobs"].to_numpy().astype(np.float64)
            divergence += float(np.sum((teacher - logprobs)[trained]))
            num_compared += count
    return {
        keys.TRAIN_LOSS: loss / num_trained,
        **({FORWARD_KL: divergence / num_compared} if num_compared else {}),
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for work, _ in parts for datum in work.data_D)),
        keys.TRAIN_TRAINED_TOKENS: float(num_trained),
    }
