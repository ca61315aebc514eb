"""The service's policy losses over rollouts, and what their answers say."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

import tinker

from cookhouse.policy_losses import CLIP_HIGH, CLIP_LOW, POLICY_LOSSES
from cookhouse.rl import clip_metrics, kl_metrics, sampling_metrics
from cookhouse.settings import LossSettings
from cookhouse.telemetry import keys
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.loop.objective import (
    LOSSES,
    Answered,
    CustomLoss,
    Objective,
    ServiceLoss,
    answered_datums,
    custom_metrics,
)
from cookhouse.training.work import Work


def policy_objective(settings: LossSettings) -> Objective[Any]:
    """A loss of the service over sampled tokens with advantages, or one of `LOSSES`.

    Raises:
        UnknownNameError: there is no such loss.
        InputError: it cannot be imported.
    """
    if settings.loss_fn in POLICY_LOSSES:
        loss = ServiceLoss(name=settings.loss_fn, config=settings.loss_fn_config)
        return Objective(loss=loss, metrics=partial(policy_metrics, settings))
    custom = CustomLoss(function=LOSSES.find(settings.loss_fn))
    return Objective(loss=custom, metrics=lambda parts: {**policy_metrics(settings, parts), **custom_metrics(parts)})


def policy_metrics(settings: LossSettings, parts: Answered[Any]) -> dict[str, float]:
    """Divergence of the sampler from the weights that each piece met, entropy, clipped share where the bounds are
    known, token counts, and the loss as the service reports it, a sum over all tokens.
    """
    answered = list(answered_datums(parts))
    data_D = [datum for datum, _ in answered]
    logprobs_D_T = [fields["logprobs"].to_numpy() for _, fields in answered]
    metrics = {
        **kl_metrics(data_D, logprobs_D_T),
        **sampling_metrics(data_D),
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for datum in data_D)),
        keys.TRAIN_TRAINED_TOKENS: float(sum(datum.loss_fn_inputs["mask"].to_numpy().sum() for datum in data_D)),
    }
    losses = [output.metrics["loss:sum"] for _, output in parts if "loss:sum" in output.metrics]
    if losses and len(losses) == len(parts):
        metrics[keys.POLICY_LOSS] = float(sum(losses))
    loss = settings.policy_loss
    bounds = {**loss.published_options, **settings.loss_fn_config}
    if CLIP_LOW in bounds and CLIP_HIGH in bounds:
        metrics |= clip_metrics(
            data_D,
            logprobs_D_T,
            low=bounds[CLIP_LOW],
            high=bounds[CLIP_HIGH],
            is_per_datum=loss.ratio == "sequence",
        )
    return metrics


def post_step_divergence(client: TrainingClient, works: Sequence[Work[Any]]) -> Awaitable[Mapping[str, float]]:
    """Requests the divergence of the sampler from the weights after a step, on its own tokens: the `_post` figures.

    A pass over the step's datums by `forward`, which leaves no gradient. Of a step without datums nothing is asked.
    """
    # Work that is trained on several times is asked about once.
    data_D = list({id(datum): datum for work in works for datum in work.data_D}.values())
    if not data_D:
        return _no_metrics()
    return _post_metrics(data_D, client.forward([_asked(datum) for datum in data_D], "cross_entropy"))


async def _no_metrics() -> Mapping[str, float]:
    return {}


def _asked(datum: tinker.Datum) -> tinker.Datum:
    inputs = datum.loss_fn_inputs
    asked = {"target_tokens": inputs["target_tokens"], "weights": inputs["mask"]}
    return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=asked)


async def _post_metrics(
    data_D: Sequence[tinker.Datum], pending: Awaitable[tinker.ForwardBackwardOutput]
) -> Mapping[str, float]:
    output = await pending
    return kl_metrics(data_D, [fields["logprobs"].to_numpy() for fields in output.loss_fn_outputs], suffix="_post")
