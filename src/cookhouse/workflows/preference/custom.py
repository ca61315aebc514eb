"""Losses over pairs that are computed here, from logprobs of the service: with torch, for their gradient.

Legend: P pairs, D datums (chosen, rejected, chosen, ...), T positions.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.extras import require_engine
from cookhouse.losses.pair_losses import PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.loop.objective import Answered, custom_metrics
from cookhouse.training.work import Work
from cookhouse.workflows.preference.assembler import PairPayload
from cookhouse.workflows.preference.metrics import (
    answer_tokens,
    answer_weights,
    check_pairs,
    pair_metrics,
    pairs_of_sums,
)

if TYPE_CHECKING:
    import torch


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
