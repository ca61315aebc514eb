"""Losses over pairs that the service computes itself: one pass in place of two, and no logprobs of tokens on the wire.

Legend: D datums (chosen, rejected, chosen, ...), P pairs.
"""

from collections.abc import Awaitable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.settings import PairLossSettings
from cookhouse.training.clients.client import PairLossOffer, TrainingClient
from cookhouse.training.loop.objective import Answered
from cookhouse.training.preference.assembler import PairPayload
from cookhouse.training.preference.custom import answer_tokens, pair_metrics, pairs_of_sums
from cookhouse.training.preference.losses import PairLoss
from cookhouse.training.work import Work

_TOKEN_BYTES = 4
"""Of a token of `model_input` on the wire."""


@dataclass(frozen=True, kw_only=True)
class FusedPairLoss:
    """The mean of a loss over the pairs of a batch, and its gradient, computed by the service."""

    loss: PairLoss
    settings: PairLossSettings
    offer: PairLossOffer

    def submit(self, client: TrainingClient, work: Work[PairPayload]) -> Awaitable[tinker.ForwardBackwardOutput]:
        data_D = list(work.data_D)
        if self.loss.needs_reference:
            data_D = with_reference(data_D, work.payload.reference_P2)
        name = cast("tinker.types.LossFnType", self.settings.loss_fn)
        # Every call divides by the pairs of the whole batch, so that they add up to its mean.
        config = {**self._options, "num_pairs": float(len(data_D) // 2)}
        calls = [client.forward_backward(call, name, config) for call in whole_pairs(data_D, self.offer)]
        return calls[0] if len(calls) == 1 else _Joined(calls)

    @property
    def _options(self) -> Mapping[str, float | str]:
        settings = self.settings
        options: dict[str, float | str] = {"dpo_beta": settings.dpo_beta}
        if settings.label_smoothing:
            options["label_smoothing"] = settings.label_smoothing
        if settings.loss_fn == "simpo":
            options["simpo_gamma"] = settings.simpo_gamma
        return options

    def metrics(self, parts: Answered[PairPayload]) -> dict[str, float]:
        """`pair_metrics` of what the service has computed, a mean over the step's pieces, under `train/`."""
        reports = [self._report(work, output) for work, output in parts]
        return {f"train/{name}": sum(each[name] for each in reports) / len(reports) for name in reports[0]}

    def _report(self, work: Work[PairPayload], output: tinker.ForwardBackwardOutput) -> dict[str, float]:
        sums_D = [float(np.sum(each["logprobs"].to_numpy(), dtype=np.float64)) for each in output.loss_fn_outputs]
        pairs = pairs_of_sums(np.array(sums_D), answer_tokens(work.data_D), work.payload.reference_P2)
        return pair_metrics(self.loss, self.settings, pairs, output.metrics["loss:sum"])


def with_reference(data_D: Sequence[tinker.Datum], reference_P2: NDArray[np.float64]) -> list[tinker.Datum]:
    """The datums with `reference_logprobs`: two values each, which add up to what the reference says of the answer more
    exactly than one of fp32 could say it.
    """
    found = []
    for datum, total in zip(data_D, reference_P2.reshape(-1), strict=True):
        most = np.float32(total)
        values = np.array([most, total - np.float64(most)], dtype=np.float32)
        inputs = {**datum.loss_fn_inputs, "reference_logprobs": tinker.TensorData.from_numpy(values)}
        found.append(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs))
    return found


def whole_pairs(data_D: Sequence[tinker.Datum], offer: PairLossOffer) -> Iterator[list[tinker.Datum]]:
    """The datums in calls that are one request each, so that no pair is parted. A pair that is larger than a request is
    a call of its own.
    """
    call: list[tinker.Datum] = []
    num_bytes = 0
    for index in range(0, len(data_D), 2):
        pair = data_D[index : index + 2]
        size = sum(_num_bytes(datum) for datum in pair)
        if call and (len(call) + len(pair) > offer.max_datums or num_bytes + size > offer.max_bytes):
            yield call
            call, num_bytes = [], 0
        call += pair
        num_bytes += size
    yield call


def _num_bytes(datum: tinker.Datum) -> int:
    inputs = sum(tensor.to_numpy().nbytes for tensor in datum.loss_fn_inputs.values())
    return _TOKEN_BYTES * datum.model_input.length + inputs


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
