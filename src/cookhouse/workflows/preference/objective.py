"""Losses over pairs as objectives of the loop."""

from collections.abc import Mapping

import numpy as np

from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import keys
from cookhouse.training.clients.client import PairLossOffer
from cookhouse.training.loop.objective import Answered, Objective
from cookhouse.workflows.preference.assembler import PairPayload
from cookhouse.workflows.preference.calls import token_logprobs
from cookhouse.workflows.preference.custom import CustomPairLoss
from cookhouse.workflows.preference.fused import FusedPairLoss


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
