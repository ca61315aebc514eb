"""What is asked of the service for a piece of work, and what its answer says."""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import tinker

from cookhouse.telemetry import keys
from cookhouse.training.client import TrainingClient
from cookhouse.training.work import Work


class Objective(Protocol):
    """Turns work into a request, and the request's answer into metrics."""

    def submit(self, client: TrainingClient, work: Work) -> Awaitable[tinker.ForwardBackwardOutput]:
        """Send the work without waiting for anything."""

    def finish(self, parts: Sequence[tuple[Work, tinker.ForwardBackwardOutput]]) -> Mapping[str, float]:
        """Metrics of a step from all its pieces and their answers."""


class CrossEntropy:
    """The service's `cross_entropy`: the gradient of −Σ weight·logprob, a sum over all tokens of the batch."""

    def submit(self, client: TrainingClient, work: Work) -> Awaitable[tinker.ForwardBackwardOutput]:
        return client.forward_backward(list(work.data_D), "cross_entropy")

    def finish(self, parts: Sequence[tuple[Work, tinker.ForwardBackwardOutput]]) -> Mapping[str, float]:
        """Mean negative log-likelihood over the batch, −Σ weight·logprob / Σ weight, and token counts."""
        # Sums, not dot products: those may differ in the last bit from one machine, or one day, to the next.
        loss = total_weight = 0.0
        num_trained = 0
        for datum, fields in answered_datums(parts):
            weights = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
            logprobs = fields["logprobs"].to_numpy().astype(np.float64)
            trained = weights != 0
            loss -= float(np.sum(weights[trained] * logprobs[trained]))
            total_weight += float(np.sum(weights))
            num_trained += int(np.count_nonzero(trained))
        return {
            keys.TRAIN_LOSS: loss / total_weight,
            keys.TRAIN_TOKENS: float(sum(datum.model_input.length for work, _ in parts for datum in work.data_D)),
            keys.TRAIN_TRAINED_TOKENS: float(num_trained),
        }


def answered_datums(
    parts: Sequence[tuple[Work, tinker.ForwardBackwardOutput]],
) -> Iterator[tuple[tinker.Datum, Mapping[str, tinker.TensorData]]]:
    """Each datum of a step with the service's fields for it."""
    for work, output in parts:
        yield from zip(work.data_D, output.loss_fn_outputs, strict=True)
