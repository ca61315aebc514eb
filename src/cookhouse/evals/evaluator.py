"""What an evaluator is: a measurement of the weights that a client holds."""

from collections.abc import Awaitable
from typing import Protocol

import tinker

Metrics = dict[str, float | None]
"""Figures by name. One that could not be measured is None, never 0."""


class ForwardClient(Protocol):
    """The part of `tinker.TrainingClient` that an evaluation may use: nothing that leaves a gradient."""

    def forward(
        self, data: list[tinker.Datum], loss_fn: tinker.types.LossFnType
    ) -> Awaitable[tinker.ForwardBackwardOutput]: ...


class SampleClient(Protocol):
    """The part of `tinker.SamplingClient` that an evaluation uses."""

    def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> Awaitable[tinker.SampleResponse]: ...


class TrainingClientEvaluator(Protocol):
    """Measures the weights being trained; submitted before a step, it sees the weights before that step."""

    async def __call__(self, client: ForwardClient) -> Metrics: ...


class SamplingClientEvaluator(Protocol):
    """Measures fixed weights by sampling from them."""

    async def __call__(self, client: SampleClient) -> Metrics: ...
