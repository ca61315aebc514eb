"""Objectives of losses over pairs: computed by the service, in one pass and with no gradient on the wire, or here from
its logprobs, with torch for their gradient.

Legend: P pairs, D datums (chosen, rejected, chosen, ...), T positions.
"""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.extras import require_engine
from cookhouse.losses.pair_losses import PAIR_LOSSES, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import keys
from cookhouse.training.clients.client import PairLossOffer, TrainingClient
from cookhouse.training.loop.objective import Answered, Objective, custom_metrics
from cookhouse.training.work import Work
from cookhouse.workflows.preference.assembler import PairPayload
from cookhouse.workflows.preference.calls import answer_sums, token_logprobs, whole_pairs, with_reference
from cookhouse.workflows.preference.metrics import (
    answer_tokens,
    answer_weights,
    check_pairs,
    pair_metrics,
    pairs_of_sums,
)

if TYPE_CHECKING:
    import torch


def pair_objective(
    settings: PairLossSettings, offer: PairLossOffer | None = None, *, with_logprobs: bool = False
) -> Objective[PairPayload]:
    """One of `PAIR_LOSSES`: computed by the service where it offers this one, else here. `with_logprobs`: those of
    tokens are wanted, where there is a choice.

    Raises:
        UnknownNameError: there is no such loss.
        InputError: it cannot be imported, or is computed here and torch is not installed.
    """
    found = PAIR_LOSSES.find(settings.pair_loss)
    loss: CustomPairLoss | FusedPairLoss
    if offer is not None and settings.pair_loss in offer.names:
        loss = FusedPairLoss(loss=found, settings=settings, offer=offer, with_logprobs=with_logprobs)
    else:
        loss = CustomPairLoss(loss=found, settings=settings)

    def metrics(parts: Answered[PairPayload]) -> Mapping[str, float]:
        return {**loss.metrics(parts), **_counts(parts)}

    if isinstance(loss, FusedPairLoss):
        return Objective(loss=loss, metrics=metrics, logprobs=token_logprobs)
    return Objective(loss=loss, metrics=metrics)


def _counts(parts: Answered[PairPayload]) -> Mapping[str, float]:
    data_D = [datum for work, _ in parts for datum in work.data_D]
    num_trained = sum(np.count_nonzero(datum.loss_fn_inputs["weights"].to_numpy()) for datum in data_D)
    return {
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for datum in data_D)),
        keys.TRAIN_TRAINED_TOKENS: float(num_trained),
    }


@dataclass(frozen=True, kw_only=True)
class FusedPairLoss:
    """The mean of a loss over the pairs of a batch, and its gradient, computed by the service."""

    loss: PairLoss
    settings: PairLossSettings
    offer: PairLossOffer
    with_logprobs: bool = False
    """Ask for the logprobs of tokens, too, where the service gives them."""

    def submit(self, client: TrainingClient, work: Work[PairPayload]) -> Awaitable[tinker.ForwardBackwardOutput]:
        data_D = list(work.data_D)
        if self.loss.needs_reference:
            data_D = with_reference(data_D, work.payload.reference_P2)
        name = cast("tinker.types.LossFnType", self.settings.pair_loss)
        # Every call divides by the pairs of the whole batch, so that they add up to its mean.
        config = {**self._options, "num_pairs": float(len(data_D) // 2)}
        if self.with_logprobs and self.offer.has_token_logprobs:
            config["token_logprobs"] = 1.0
        calls = [client.forward_backward(call, name, config) for call in whole_pairs(data_D, self.offer)]
        return calls[0] if len(calls) == 1 else _Joined(calls)

    @property
    def _options(self) -> Mapping[str, float | str]:
        return {name: getattr(self.settings, name) for name in self.loss.options}

    def metrics(self, parts: Answered[PairPayload]) -> dict[str, float]:
        """`pair_metrics` of what the service has computed, a mean over the step's pieces, under `train/`."""
        reports = [self._report(work, output) for work, output in parts]
        if not reports:  # of a batch whose rows cannot be used
            return {}
        return {f"train/{name}": sum(each[name] for each in reports) / len(reports) for name in reports[0]}

    def _report(self, work: Work[PairPayload], output: tinker.ForwardBackwardOutput) -> dict[str, float]:
        pairs = pairs_of_sums(np.array(answer_sums(output)), answer_tokens(work.data_D), work.payload.reference_P2)
        return pair_metrics(self.loss, self.settings, pairs, output.metrics["loss:sum"])


@dataclass(frozen=True)
class _Joined:
    """Several calls as one answer."""

    calls: Sequence[Awaitable[tinker.ForwardBackwardOutput]]

    def __await__(self) -> Generator[Any, None, tinker.ForwardBackwardOutput]:
        return self._joined().__await__()

    async def _joined(self) -> tinker.ForwardBackwardOutput:
        outputs = [await call for call in self.calls]
        return tinker.ForwardBackwardOutput(
            loss_fn_output_type=outputs[0].loss_fn_output_type,
            loss_fn_outputs=[fields for output in outputs for fields in output.loss_fn_outputs],
            metrics={"loss:sum": sum(output.metrics["loss:sum"] for output in outputs)},
        )


@dataclass(frozen=True, kw_only=True)
class CustomPairLoss:
    """The mean of a loss over the pairs of a batch, and its gradient, computed here from the service's logprobs.

    Raises:
        InputError: torch is not installed.
    """

    loss: PairLoss
    settings: PairLossSettings

    def __post_init__(self) -> None:
        require_engine(f"pair_loss={self.settings.pair_loss}, which the service does not compute,", ["torch"])

    def metrics(self, parts: Answered[PairPayload]) -> Mapping[str, float]:
        """`pair_metrics`, under `train/`."""
        return custom_metrics(parts)

    def submit(self, client: TrainingClient, work: Work[PairPayload]) -> Awaitable[tinker.ForwardBackwardOutput]:
        def mean_loss(
            data_D: list[tinker.Datum], logprobs_D_T: "list[torch.Tensor]"
        ) -> "tuple[torch.Tensor, dict[str, float]]":
            pairs = pair_logprobs(data_D, logprobs_D_T, work.payload.reference_P2)
            loss = self.loss.function(pairs, self.settings).mean()
            found = PairLogprobs(**{name: values_P.detach().numpy() for name, values_P in vars(pairs).items()})
            return loss, pair_metrics(self.loss, self.settings, found, float(loss.detach()))

        return client.forward_backward_custom(list(work.data_D), mean_loss)


def pair_logprobs(
    data_D: Sequence[tinker.Datum], logprobs_D_T: "Sequence[torch.Tensor]", reference_P2: NDArray[np.float64]
) -> PairLogprobs:
    """Sums over the answers of interleaved datums, in double precision, with the gradient of the logprobs. Raises as
    `check_pairs`.
    """
    import torch

    check_pairs(data_D, logprobs_D_T, reference_P2)
    weights_D_T = [torch.from_numpy(weights_T) for weights_T in answer_weights(data_D)]
    sums_D = torch.stack([(w * lp.double()).sum() for w, lp in zip(weights_D_T, logprobs_D_T, strict=True)])
    return pairs_of_sums(sums_D, torch.from_numpy(answer_tokens(data_D)), torch.from_numpy(reference_P2))
