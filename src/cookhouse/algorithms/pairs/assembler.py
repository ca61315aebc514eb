"""Pairs to the datums that train on them, with what the reference says of their answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cookhouse.algorithms.pairs.dataset import Pair, interleaved
from cookhouse.algorithms.pairs.reference import Reference
from cookhouse.telemetry import Telemetry
from cookhouse.training.work import Assembled


@dataclass(frozen=True, kw_only=True)
class PairPayload:
    """Inputs of a loss over pairs besides the logprobs of the weights being trained."""

    reference_P2: NDArray[np.float64]
    """Σ w·logprob under the reference of each pair's answers: chosen, rejected."""


class PairAssembler:
    """The assembler of batches of pairs: interleaved datums, and the reference, which is asked while the batch before
    is trained on.
    """

    def __init__(self, reference: Reference, telemetry: Telemetry) -> None:
        self._reference = reference
        self._telemetry = telemetry

    async def __call__(self, pairs: Sequence[Pair]) -> Assembled[PairPayload]:
        """Two datums for each pair.

        Raises:
            InputError: the service refused an answer.
            ServiceError: the reference failed.
        """
        with self._telemetry.span("compute_reference_logprobs"):
            payload = PairPayload(reference_P2=await self._reference.logprobs(pairs))
        return Assembled(data_D=interleaved(pairs), payload=payload, labels=("chosen", "rejected"))
