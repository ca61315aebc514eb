"""Evaluators: measurements of the weights that a client holds."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

import tinker

from cookhouse.chat import Renderer
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import TrainingSettings

Metrics: TypeAlias = Mapping[str, float | str | None]
"""Figures, or text, by name. One that could not be measured is None, never 0."""


class ForwardClient(Protocol):
    """The part of `tinker.TrainingClient` that an evaluation may use: nothing that leaves a gradient."""

    def forward(
        self, data: list[tinker.Datum], loss_fn: tinker.types.LossFnType
    ) -> Awaitable[tinker.ForwardBackwardOutput]: ...


class PreparedEvaluator:
    """Evaluator that a run can prepare before it opens a session."""

    async def prepare(self) -> None:
        """Raises `InputError` where it could not measure; asks no service. Default: not known."""


class TrainingClientEvaluator(PreparedEvaluator, ABC):
    """Measures the weights being trained; submitted before a step, it sees the weights before that step."""

    @abstractmethod
    async def __call__(self, client: ForwardClient) -> Metrics: ...


class SamplingClientEvaluator(PreparedEvaluator, ABC):
    """Measures fixed weights by sampling from them."""

    @abstractmethod
    async def __call__(self, client: SamplingClient) -> Metrics: ...


Evaluator: TypeAlias = (
    TrainingClientEvaluator | SamplingClientEvaluator | Callable[[SamplingClient], Awaitable[Metrics]]
)
"""A plain async function samples, too."""
EvaluatorBuilder: TypeAlias = Callable[[TrainingSettings, Renderer], Evaluator | None]
"""Makes an evaluator for a run, from its settings and the renderer of its model; None: they leave nothing to measure.
"""
