"""The losses of a training service, plainly: each token's loss, and its derivative by the token's logprob.

Legend: T positions of one datum. ρ = exp(lp − q).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.policy_losses import CLIP_HIGH, CLIP_LOW, POLICY_LOSSES, check_options

Tokens: TypeAlias = NDArray[np.float64]
Inputs: TypeAlias = Mapping[str, NDArray[Any]]
Options: TypeAlias = Mapping[str, float]


def token_losses(name: str, lp_T: Tokens, inputs: Inputs, config: Mapping[str, Any] | None) -> tuple[Tokens, Tokens]:
    """Losses of the tokens of a datum, and their derivatives by `lp_T`.

    Raises:
        InputError: there is no such loss, or an option of it; one is out of its bounds; or an input is missing.
    """
    if name not in _LOSSES:
        raise UnknownNameError("loss", name, _LOSSES)
    facts = POLICY_LOSSES.get(name)
    wanted, defaults = (("weights",), {}) if facts is None else (facts.inputs, facts.options)
    for option in config or {}:
        if option not in defaults:
            raise UnknownNameError(f"option of {name}", option, defaults)
    check_options(config or {}, defaults)
    if missing := sorted(set(wanted) - set(inputs)):
        raise InputError(f"{name} lacks {', '.join(missing)}")
    return _LOSSES[name](lp_T, inputs, {**defaults, **(config or {})})


def _cross_entropy(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    del options
    weight_T = inputs["weights"].astype(np.float64)
    return -weight_T * lp_T, -weight_T


def _importance_sampling(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    del options
    loss_T = -_ratio(lp_T, inputs) * inputs["advantages"]
    return loss_T, loss_T


def _ppo(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    return _clipped(_ratio(lp_T, inputs), inputs, options)


def _cispo(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    weight_T = _clip(_ratio(lp_T, inputs), options) * inputs["advantages"]
    return -weight_T * lp_T, -weight_T


def _dro(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    deviation_T, beta = lp_T - inputs["logprobs"], options["beta"]
    return -(lp_T * inputs["advantages"] - 0.5 * beta * deviation_T**2), beta * deviation_T - inputs["advantages"]


def _gspo(lp_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    is_counted_T = inputs["sequence_ratio_mask"] != 0
    log_ratio_T = (lp_T - inputs["logprobs"])[is_counted_T]
    ratio = np.exp(log_ratio_T.mean()) if log_ratio_T.size else 1.0
    return _clipped(np.full_like(lp_T, ratio), inputs, options)


def _ratio(lp_T: Tokens, inputs: Inputs) -> Tokens:
    return np.asarray(np.exp(np.where(inputs["advantages"] != 0, lp_T - inputs["logprobs"], 0.0)))


def _clip(ratio_T: Tokens, options: Options) -> Tokens:
    return np.clip(ratio_T, options[CLIP_LOW], options[CLIP_HIGH])


def _clipped(ratio_T: Tokens, inputs: Inputs, options: Options) -> tuple[Tokens, Tokens]:
    plain_T = ratio_T * inputs["advantages"]
    clipped_T = _clip(ratio_T, options) * inputs["advantages"]
    return -np.minimum(plain_T, clipped_T), np.where(plain_T <= clipped_T, -plain_T, 0.0)


_Loss: TypeAlias = Callable[[Tokens, Inputs, Options], tuple[Tokens, Tokens]]

_LOSSES: Mapping[str, _Loss] = {
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
    "dro": _dro,
    "gspo": _gspo,
}
