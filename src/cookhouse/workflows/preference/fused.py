"""Losses over pairs that the service computes itself: one pass in place of two, no gradient on the wire."""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tinker

from cookhouse.losses.pair_losses import PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.training.clients.client import PairLossOffer, TrainingClient
from cookhouse.training.loop.objective import Answered
from cookhouse.training.work import Work
from cookhouse.workflows.preference.assembler import PairPayload
from cookhouse.workflows.preference.calls import answer_sums, whole_pairs, with_reference
from cookhouse.workflows.preference.metrics import answer_tokens, pair_metrics, pairs_of_sums


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
