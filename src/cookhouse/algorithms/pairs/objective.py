"""Objectives of losses over pairs: computed by the service, in one pass and with no gradient on the wire, or here from
its logprobs, with torch for their gradient; and the metrics of pairs, in NumPy from sums of logprobs: where the service
computes the loss, no torch is needed here.

Legend: P pairs, D datums (chosen, rejected, chosen, ...), T positions.
"""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.algorithms.base.state import OpenedRun
from cookhouse.algorithms.pairs.calls import answer_sums, token_logprobs, whole_pairs, with_reference
from cookhouse.algorithms.pairs.reference import (
    PairAssembler,
    PairPayload,
    Reference,
    open_reference,
)
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.losses.pair_losses import PAIR_LOSSES, Array, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import keys
from cookhouse.training.clients.client import PairLossOffer, TrainingClient
from cookhouse.training.clients.session import service_errors
from cookhouse.training.loop.objective import Answered, Objective, custom_metrics
from cookhouse.training.work import Work

if TYPE_CHECKING:
    import torch

ArrayPairs: TypeAlias = PairLogprobs[NDArray[np.float64]]
_ONCE = 1.0 + float(np.finfo(np.float32).eps)


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


async def open_pairs(
    context: RunContext, config: Any, opened: OpenedRun, *, with_logprobs: bool = False
) -> tuple[Objective[PairPayload], Reference]:
    """The loss over pairs of a run, computed by the service where that has it, and the reference that it needs. The
    settings are those of a training run with `ReferenceSettings`. Raises as `pair_objective` and `open_reference`.
    """
    with service_errors("asking which losses the service has"):
        offered = await opened.session.service.pair_losses()
    offer = offered if config.pair_loss in offered.names else None
    objective = pair_objective(config, offer, with_logprobs=with_logprobs)
    return objective, await open_reference(config, opened.session, opened.folder, context.registry, offer)


@stage(doing="opening the reference", needs=("service",))
async def init_pairs(
    context: RunContext, config: Any, opened: OpenedRun
) -> tuple[Objective[PairPayload], PairAssembler]:
    """Open the loss over pairs and its reference, for a run that makes pairs of its own."""
    objective, reference = await open_pairs(context, config, opened)
    return objective, PairAssembler(reference, context.telemetry)


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


def pairs_of_sums(sums_D: Array, tokens_D: Array, reference_P2: Array) -> PairLogprobs[Array]:
    """Log-probabilities of pairs whose answers have these sums, interleaved."""
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
    """Sums over the answers of interleaved datums, in nats and float64, (P,) each, from the logprobs of their targets,
    (T,) each, and those of the reference, (P, 2).

    Raises:
        InputError: the datums are not pairs, or the logprobs are not theirs.
    """
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
