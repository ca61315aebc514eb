"""Losses over per-token log-probabilities, and the check of their inputs.

Every loss is summed over tokens and datums, never averaged: callers put denominators into weights or advantages.
Position t of a datum predicts `target_tokens`[t]. lp is the log-probability of the target under the weights being
trained (temperature 1, fp32), q the input `logprobs` recorded when the target was sampled, A the `advantages`.

The losses and their options are the hosted service's (https://tinker-docs.thinkingmachines.ai/losses), but for
`stable_reinforce`, and those over pairs of `pairs.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.contract import ForwardBackward, TrainingDatum
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.vocabulary import check_tokens
from cookhouse.engine.train.loss import Loss, LossFunction, LossInputs
from cookhouse.engine.train.pairs import PAIR_LOSSES
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.policy_losses import OWN_LOSSES, POLICY_LOSSES, STABLE_REINFORCE, check_options


def cross_entropy(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−w · lp. Absent weights count as one."""
    return -inputs.values["weights"] * lp_M


def importance_sampling(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−ρ · A with ρ = exp(lp − q): the policy gradient, corrected for the policy that sampled."""
    return -_ratio(lp_M, inputs) * inputs.values["advantages"]


def ppo(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−min(ρ · A, clip(ρ) · A); thresholds bound the ratio itself (https://arxiv.org/abs/1707.06347, equation 7)."""
    return _clipped(_ratio(lp_M, inputs), inputs)


def cispo(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−sg(clip(ρ)) · lp · A: a clipped ratio still lets every token teach (https://arxiv.org/abs/2506.13585, eq. 4)."""
    weight_M = _clip(_ratio(lp_M, inputs).detach(), inputs)
    return -weight_M * lp_M * inputs.values["advantages"]


def dro(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−(lp · A − ½ β (lp − q)²): the policy term of direct reward optimization (https://arxiv.org/abs/2405.19107)."""
    deviation_M = lp_M - inputs.values["logprobs"]
    return -(lp_M * inputs.values["advantages"] - 0.5 * inputs.config["beta"] * deviation_M.square())


def gspo(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """PPO's objective with one ratio per datum, the token variant (https://arxiv.org/abs/2507.18071, section 4.3).

    s = exp(mean of lp − q over the datum's positions where `sequence_ratio_mask` is not 0); each position takes the
    value of s and the gradient of its own lp. A datum with no such position has s = 1.
    """
    is_counted_M = (inputs.values["sequence_ratio_mask"] != 0).to(lp_M.dtype)
    num_datums = int(inputs.datum_M[-1]) + 1
    log_ratio_M = (lp_M.detach() - inputs.values["logprobs"]) * is_counted_M
    total_D = lp_M.new_zeros(num_datums).index_add_(0, inputs.datum_M, log_ratio_M)
    count_D = lp_M.new_zeros(num_datums).index_add_(0, inputs.datum_M, is_counted_M)
    sequence_ratio_M = torch.exp(total_D / count_D.clamp(min=1.0))[inputs.datum_M]
    return _clipped(sequence_ratio_M * torch.exp(lp_M - lp_M.detach()), inputs)


def stable_reinforce(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """sg(min(ρ, c)) · (−A · lp + ½ k (lp − q)²) over sampled tokens, 0 at others: an objective of ours. That of the
    hosted service is not published. c is `clip_high_threshold`, k is `kl_coeff`.

    The first term is REINFORCE with truncated importance weights (https://arxiv.org/abs/2505.24034). The gradient of
    the second, ρ k (lp − q) ∇lp, is in expectation over the sampler's tokens k times that of KL(policy ‖ sampler),
    context by context (https://arxiv.org/abs/2505.17508), but for what is truncated.
    """
    is_sampled_M = inputs.values["is_sampled"] != 0
    log_ratio_M = torch.where(is_sampled_M, lp_M - inputs.values["logprobs"], 0.0)
    weight_M = torch.exp(log_ratio_M.detach()).clamp(max=inputs.config["clip_high_threshold"]) * is_sampled_M
    return weight_M * (0.5 * inputs.config["kl_coeff"] * log_ratio_M.square() - inputs.values["advantages"] * lp_M)


def _ratio(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """exp(lp − q), and 1 where the advantage is 0: there a huge ratio would make NaN of what counts for nothing."""
    is_used_M = inputs.values["advantages"] != 0
    return torch.exp(torch.where(is_used_M, lp_M - inputs.values["logprobs"], 0.0))


def _clip(ratio_M: Tensor, inputs: LossInputs) -> Tensor:
    return ratio_M.clamp(inputs.config["clip_low_threshold"], inputs.config["clip_high_threshold"])


def _clipped(ratio_M: Tensor, inputs: LossInputs) -> Tensor:
    advantages_M = inputs.values["advantages"]
    return -torch.minimum(ratio_M * advantages_M, _clip(ratio_M, inputs) * advantages_M)


def _check_options(request: ForwardBackward) -> None:
    given = {option: float(value) for option, value in request.loss_fn_config.items()}
    try:
        check_options(given, LOSSES[request.loss_fn].config)
    except InputError as error:
        raise InputError(f"options of {request.loss_fn}: {error}") from None


def _policy_loss(name: str, function: LossFunction) -> Loss:
    facts = {**POLICY_LOSSES, **OWN_LOSSES}[name]
    return Loss(function=function, inputs=frozenset(facts.inputs), config=facts.options, check=_check_options)


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(function=cross_entropy, inputs=frozenset({"weights"}), defaults={"weights": 1.0}),
    "importance_sampling": _policy_loss("importance_sampling", importance_sampling),
    "ppo": _policy_loss("ppo", ppo),
    "cispo": _policy_loss("cispo", cispo),
    "dro": _policy_loss("dro", dro),
    "gspo": _policy_loss("gspo", gspo),
    STABLE_REINFORCE: _policy_loss(STABLE_REINFORCE, stable_reinforce),
    **PAIR_LOSSES,
}

_REFUSED = {
    "custom": "losses traced on the client are not run here; pass forward_backward_custom a plain function",
}


def check_request(request: ForwardBackward, vocab_size: int, max_tokens: int) -> None:
    """Refuse a request that cannot be computed, naming the datum and the input, before anything is.

    Raises:
        InputError: unknown loss or option, or a datum whose inputs are missing, extra, misshapen, outside the
            vocabulary, not finite, or longer than `max_tokens`.
    """
    if request.loss_fn in _REFUSED:
        raise InputError(f"loss {request.loss_fn!r} is refused: {_REFUSED[request.loss_fn]}")
    if request.loss_fn not in LOSSES:
        raise UnknownNameError("loss", request.loss_fn, LOSSES)
    loss = LOSSES[request.loss_fn]
    for option, value in request.loss_fn_config.items():
        if not loss.config:
            raise InputError(f"{request.loss_fn} has no options; leave {option} out")
        if option not in loss.config:
            raise UnknownNameError(f"option of {request.loss_fn}", option, loss.config)
        if not isinstance(value, float | int) or not np.isfinite(value):
            raise InputError(f"option {option} of {request.loss_fn} is {value!r}; it must be a finite number")
    if not request.data_D:
        raise InputError("the request has no datum; send at least one")
    for index, datum in enumerate(request.data_D):
        try:
            _check_datum(datum, request.loss_fn, loss, vocab_size, max_tokens)
        except InputError as error:
            raise InputError(f"datum {index}: {error}") from None
    loss.check(request)


def _check_datum(datum: TrainingDatum, name: str, loss: Loss, vocab_size: int, max_tokens: int) -> None:
    num_tokens = len(datum.tokens_T)
    if num_tokens == 0:
        raise InputError("model_input is empty; give at least one token")
    if num_tokens > max_tokens:
        raise InputError(f"model_input has {num_tokens} tokens; the model takes at most {max_tokens}")
    expected = loss.inputs | loss.sums | {"target_tokens"}
    missing = sorted(expected - loss.defaults.keys() - datum.loss_fn_inputs.keys())
    extra = sorted(datum.loss_fn_inputs.keys() - expected)
    if missing or extra:
        problem = f"lacks {', '.join(missing)}" if missing else f"does not take {', '.join(extra)}"
        raise InputError(f"{name} {problem}; its inputs are {', '.join(sorted(expected))}")
    check_tokens("model_input", datum.tokens_T, vocab_size)
    targets = datum.loss_fn_inputs["target_tokens"]
    if targets.ndim not in (1, 2) or targets.shape[0] != num_tokens or 0 in targets.shape:
        raise InputError(f"target_tokens has shape {targets.shape}; model_input has {num_tokens} tokens")
    if targets.ndim == 2 and name != "cross_entropy":
        raise InputError(f"target_tokens has shape {targets.shape}; only cross_entropy takes several per position")
    if not np.issubdtype(targets.dtype, np.integer):
        raise InputError(f"target_tokens is {targets.dtype}; it must be an integer type")
    check_tokens("target_tokens", targets, vocab_size)
    for key in sorted(loss.inputs & datum.loss_fn_inputs.keys()):
        values = datum.loss_fn_inputs[key]
        if values.shape != targets.shape:
            raise InputError(f"{key} has shape {values.shape}; target_tokens has {targets.shape}")
        _check_finite(key, values)
    for key in sorted(loss.sums):
        values = datum.loss_fn_inputs[key]
        if values.ndim != 1 or not values.size:
            raise InputError(f"{key} has shape {values.shape}; it must be one value, or several that are added up")
        _check_finite(key, values)


def _check_finite(key: str, values: NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise InputError(f"{key} holds NaN or infinity at position {int(np.argwhere(~np.isfinite(values))[0][0])}")


def loss_inputs(request: ForwardBackward, data_D: Sequence[TrainingDatum], device: torch.device) -> LossInputs:
    """Inputs of some checked datums of a request, end to end, defaults filled in."""
    loss = LOSSES[request.loss_fn]
    shapes = [datum.loss_fn_inputs["target_tokens"].shape for datum in data_D]
    values = {}
    for key in sorted(loss.inputs):
        arrays = [
            np.full(shape, loss.defaults[key], np.float32)
            if key not in datum.loss_fn_inputs
            else datum.loss_fn_inputs[key]
            for datum, shape in zip(data_D, shapes, strict=True)
        ]
        values[key] = upload(np.concatenate([array.reshape(-1).astype(np.float32) for array in arrays]), device)
    sizes = [int(np.prod(shape)) for shape in shapes]
    sums_D = {
        key: upload(np.array([datum.loss_fn_inputs[key].sum(dtype=np.float64) for datum in data_D]), device)
        for key in sorted(loss.sums)
    }
    return LossInputs(
        values=values,
        config={**loss.config, **{key: float(value) for key, value in request.loss_fn_config.items()}},
        datum_M=upload(np.repeat(np.arange(len(sizes)), sizes), device),
        sums_D=sums_D,
    )
