"""Objectives: the requests to the service for a piece of work, and what its answer says: a loss, and metrics."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.extras import require_engine
from cookhouse.naming import OpenSet
from cookhouse.rl import for_loss
from cookhouse.telemetry import keys
from cookhouse.training.clients.client import LossFunction, TrainingClient
from cookhouse.training.work import Work

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)

Answered: TypeAlias = Sequence[tuple[Work[P], tinker.ForwardBackwardOutput]]
"""All pieces of a step with their answers."""


class Loss(Protocol[P_contra]):
    """Loss by which work becomes a gradient."""

    def submit(self, client: TrainingClient, work: Work[P_contra]) -> Awaitable[tinker.ForwardBackwardOutput]:
        """Send the work without waiting for anything."""


Fields: TypeAlias = Mapping[str, tinker.TensorData]
"""What the service answers to a datum, by name."""
FindLogprobs: TypeAlias = Callable[[tinker.Datum, Fields], NDArray[Any] | None]
"""In the shape of the datum's targets, NaN where there is none; None: there are none."""


def answered_logprobs(datum: tinker.Datum, fields: Fields) -> NDArray[Any] | None:
    """`logprobs` of an answer; None where there are not as many as targets."""
    if "logprobs" not in fields:
        return None
    targets, logprobs = datum.loss_fn_inputs["target_tokens"].to_numpy(), fields["logprobs"].to_numpy()
    return logprobs.reshape(targets.shape) if logprobs.size == targets.size else None


@dataclass(frozen=True, kw_only=True)
class Objective(Generic[P]):
    """Requests of a step, and its reports."""

    loss: Loss[P]
    metrics: Callable[[Answered[P]], Mapping[str, float]]
    """Of a step, from all its pieces and their answers."""
    logprobs: FindLogprobs = answered_logprobs
    """Of a datum's targets, from what the service answered to it."""


@dataclass(frozen=True, kw_only=True)
class ServiceLoss:
    """One of the service's losses, by name. A sum over all tokens of the batch."""

    name: str
    config: Mapping[str, float] = field(default_factory=dict)
    """Options of the loss, such as `clip_low_threshold`."""

    def submit(self, client: TrainingClient, work: Work[Any]) -> Awaitable[tinker.ForwardBackwardOutput]:
        data_D = [for_loss(datum, self.name) for datum in work.data_D]
        name = cast("tinker.types.LossFnType", self.name)  # the service says what it does not know
        return client.forward_backward(data_D, name, dict(self.config) or None)


@dataclass(frozen=True, kw_only=True)
class CustomLoss:
    """A differentiable function of the logprobs, computed here, whose gradient by them is sent to the service.

    `forward_backward_custom` of the SDK: a forward pass for the logprobs, then a forward and backward pass with weights
    −∂loss/∂logprob. That takes torch.

    Raises:
        InputError: torch is not installed.
    """

    function: LossFunction
    """Takes the datums of a piece and their logprobs, a tensor of the targets' shape (T,) each, in nats; returns the
    loss, a scalar, and metrics by name, which stand under `train/`."""

    def __post_init__(self) -> None:
        require_engine("a loss that is computed here", ["torch"])

    def submit(self, client: TrainingClient, work: Work[Any]) -> Awaitable[tinker.ForwardBackwardOutput]:
        return client.forward_backward_custom(list(work.data_D), self.function)


def custom_metrics(parts: Answered[Any]) -> dict[str, float]:
    """Metrics of a custom loss, a mean over the step's pieces, under `train/`."""
    # The SDK's own two are sums over tokens: the first is reported as such, the second is a means to an end.
    reports = [
        {name: value for name, value in output.metrics.items() if not name.endswith(":sum")} for _, output in parts
    ]
    names = dict.fromkeys(name for report in reports for name in report)
    found = {name: [report[name] for report in reports if name in report] for name in names}
    return {f"train/{name}": sum(values) / len(values) for name, values in found.items()}


def likelihood_metrics(parts: Answered[Any]) -> dict[str, float]:
    """Mean negative log-likelihood over the batch, −Σ weight·logprob / Σ weight, if it has a trained token; and token
    counts.
    """
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
        # A batch of rows of which none could be used has no loss.
        **({keys.TRAIN_LOSS: loss / total_weight} if total_weight else {}),
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for work, _ in parts for datum in work.data_D)),
        keys.TRAIN_TRAINED_TOKENS: float(num_trained),
    }


CROSS_ENTROPY: Objective[Any] = Objective(loss=ServiceLoss(name="cross_entropy"), metrics=likelihood_metrics)
"""The gradient of −Σ weight·logprob."""

LOSSES: OpenSet[LossFunction] = OpenSet(
    kind="loss",
    group="cookhouse.losses",
    builtin={},
    check=lambda thing: thing if callable(thing) else None,
    wants="a loss is a function of datums and logprobs that returns the loss and a dict of metrics",
    takes=("data", "logprobs"),
)
"""Losses besides the service's own; for `CustomLoss`."""


def supervised_objective(loss_fn: str) -> Objective[Any]:
    """Of `cross_entropy`, or of a loss in `LOSSES`; the likelihood is reported next to it."""
    if loss_fn == "cross_entropy":
        return CROSS_ENTROPY
    loss = CustomLoss(function=LOSSES.find(loss_fn))
    return Objective(loss=loss, metrics=lambda parts: {**likelihood_metrics(parts), **custom_metrics(parts)})


def answered_datums(parts: Answered[Any]) -> Iterator[tuple[tinker.Datum, Fields]]:
    """Each datum of a step with the service's fields for it."""
    for work, output in parts:
        yield from zip(work.data_D, output.loss_fn_outputs, strict=True)
