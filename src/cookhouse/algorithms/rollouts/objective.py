"""The service's policy losses over rollouts, what their answers say, and a warning where ratios run away."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import tinker
from numpy.typing import NDArray

from cookhouse.algorithms.rollouts.assembler import RolloutPayload
from cookhouse.losses.policy_losses import CLIP_HIGH, CLIP_LOW, POLICY_LOSSES
from cookhouse.rl import clip_metrics, kl_metrics, sampling_metrics
from cookhouse.rl.learning.batch import Reduction
from cookhouse.rl.learning.kl import movement_metrics
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


def policy_objective(settings: LossSettings, *, reduction: Reduction = "none") -> Objective[Any]:
    """A loss of the service over sampled tokens with advantages, or one of `LOSSES`; `reduction` is what advantages
    have been divided by.

    Raises:
        UnknownNameError: there is no such loss.
        InputError: it cannot be imported.
    """
    metrics = partial(policy_metrics, settings, reduction=reduction)
    if settings.loss_fn in POLICY_LOSSES:
        return Objective(loss=ServiceLoss(name=settings.loss_fn, config=settings.loss_fn_config), metrics=metrics)
    custom = CustomLoss(function=LOSSES.find(settings.loss_fn))
    return Objective(loss=custom, metrics=lambda parts: {**metrics(parts), **custom_metrics(parts)})


def policy_metrics(settings: LossSettings, parts: Answered[Any], *, reduction: Reduction = "none") -> dict[str, float]:
    """Divergence of the sampler from the weights that each datum met first, and, of those trained on several times, of
    these from the last that it met; entropy, clipped share where the bounds are known, token counts; and the loss as
    the service reports it, a sum over all tokens, and as a mean.
    """
    answered = list(answered_datums(parts))
    data_D = [datum for datum, _ in answered]
    logprobs_D_T = [fields["logprobs"].to_numpy() for _, fields in answered]
    num_trained = float(sum(datum.loss_fn_inputs["mask"].to_numpy().sum() for datum in data_D))
    metrics = {
        **_divergence(data_D, logprobs_D_T),
        **sampling_metrics(data_D),
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for datum in data_D)),
        keys.TRAIN_TRAINED_TOKENS: num_trained,
    }
    losses = [output.metrics["loss:sum"] for _, output in parts if "loss:sum" in output.metrics]
    if losses and len(losses) == len(parts):
        metrics[keys.POLICY_LOSS] = float(sum(losses))
        if num_trained:
            metrics[keys.POLICY_LOSS_MEAN] = metrics[keys.POLICY_LOSS] / _total_weight(parts, reduction)
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


def _divergence(data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[NDArray[Any]]) -> dict[str, float]:
    """By the first answer to each datum, and from the first to the last of those with several."""
    answers: dict[int, list[int]] = {}
    for index, datum in enumerate(data_D):
        answers.setdefault(id(datum), []).append(index)
    first = [indices[0] for indices in answers.values()]
    again = [indices for indices in answers.values() if len(indices) > 1]
    return {
        **kl_metrics([data_D[index] for index in first], [logprobs_D_T[index] for index in first]),
        **movement_metrics(
            [data_D[indices[0]] for indices in again],
            [logprobs_D_T[indices[0]] for indices in again],
            [logprobs_D_T[indices[-1]] for indices in again],
        ),
    }


def _total_weight(parts: Answered[Any], reduction: Reduction) -> float:
    """Divisor that makes the loss of all parts a mean: the sum of the weights of sampled tokens."""
    tokens_D = [
        [int((datum.loss_fn_inputs["mask"].to_numpy() > 0).sum()) for datum in work.data_D] for work, _ in parts
    ]
    if reduction == "mean":
        sizes = [_sizes(work, len(counts)) for (work, _), counts in zip(parts, tokens_D, strict=True)]
        rollouts = [
            sum(islice(left, size))
            for of_work, left in zip(sizes, map(iter, tokens_D), strict=True)
            for size in of_work
        ]
        return float(sum(count > 0 for count in rollouts))
    if reduction == "none":
        return float(sum(map(sum, tokens_D)))
    # The pieces of an optimizer step count 1 together.
    updates = [0]
    for (work, _), counts in zip(parts, tokens_D, strict=True):
        updates[-1] += sum(counts)
        if work.closes_update:
            updates.append(0)
    return float(sum(count > 0 for count in updates))


def _sizes(work: Work[Any], num_datums: int) -> list[int]:
    """Datums of each rollout of a piece of work."""
    sizes_P = work.payload.num_datums_P_G if isinstance(work.payload, RolloutPayload) else ()
    return list(chain.from_iterable(sizes_P)) or [1] * num_datums


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
