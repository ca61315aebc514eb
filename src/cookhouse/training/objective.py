"""What is asked of the service for a piece of work, and what its answer says."""

import math
from collections.abc import Awaitable, Mapping
from typing import Protocol

import tinker

from cookhouse.telemetry import keys
from cookhouse.training.client import TrainingClient
from cookhouse.training.work import Work


class Objective(Protocol):
    """Turns work into a request, and the request's answer into metrics."""

    def submit(self, client: TrainingClient, work: Work) -> Awaitable[tinker.ForwardBackwardOutput]:
        """Send the work without waiting for anything."""

    def finish(self, work: Work, output: tinker.ForwardBackwardOutput) -> Mapping[str, float]:
        """Metrics of a piece of work whose answer is here."""


class CrossEntropy:
    """The service's `cross_entropy`: the gradient of −Σ weight·logprob, a sum over all tokens of the batch."""

    def submit(self, client: TrainingClient, work: Work) -> Awaitable[tinker.ForwardBackwardOutput]:
        return client.forward_backward(list(work.data_D), "cross_entropy")

    def finish(self, work: Work, output: tinker.ForwardBackwardOutput) -> Mapping[str, float]:
        """Mean negative log-likelihood over the batch, −Σ weight·logprob / Σ weight, and token counts."""
        weights_D = [datum.loss_fn_inputs["weights"].to_numpy().ravel() for datum in work.data_D]
        logprobs_D = [fields["logprobs"].to_numpy().ravel() for fields in output.loss_fn_outputs]
        products = [
            float(weight) * float(logprob)
            for weights, logprobs in zip(weights_D, logprobs_D, strict=True)
            for weight, logprob in zip(weights, logprobs, strict=True)
            if weight != 0
        ]
        total_weight = math.fsum(float(weight) for weights in weights_D for weight in weights)
        return {
            keys.TRAIN_LOSS: -math.fsum(products) / total_weight,
            keys.TRAIN_TOKENS: float(sum(datum.model_input.length for datum in work.data_D)),
            keys.TRAIN_TRAINED_TOKENS: float(len(products)),
        }
