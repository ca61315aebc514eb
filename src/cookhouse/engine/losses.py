"""Losses over per-token log-probabilities, and the check of their inputs.

Every loss is summed over tokens and datums, never averaged: callers put denominators into weights or advantages.
Position t of a datum predicts `target_tokens`[t]. lp is the log-probability of the target under the weights being
trained (temperature 1, fp32).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.contract import ForwardBackward, TrainingDatum
from cookhouse.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """What a loss reads beside lp: float inputs by name, options, and which datum each target belongs to.

    Tensors hold the M targets of several datums end to end, fp32; `datum_M` counts from 0 and never decreases.
    """

    values: Mapping[str, Tensor]
    config: Mapping[str, float]
    datum_M: Tensor


LossFunction = Callable[[Tensor, LossInputs], Tensor]
"""(lp_M, inputs) to the elementwise loss_M."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss function and what it reads."""

    function: LossFunction
    inputs: frozenset[str]
    """Names of float inputs beside `target_tokens`; all are required unless they have a default."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Inputs that may be absent, with the value that then stands at every position."""
    config: Mapping[str, float] = field(default_factory=dict)
    """Options and their defaults."""


def cross_entropy(lp_M: Tensor, inputs: LossInputs) -> Tensor:
    """−w · lp. Absent weights count as one."""
    return -inputs.values["weights"] * lp_M


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(function=cross_entropy, inputs=frozenset({"weights"}), defaults={"weights": 1.0}),
}


def check_request(request: ForwardBackward, vocab_size: int, max_tokens: int) -> None:
    """Refuse a request that cannot be computed, naming the datum and the input, before anything is.

    Raises:
        InputError: unknown loss or option, or a datum whose inputs are missing, extra, misshapen, outside the
            vocabulary, not finite, or longer than `max_tokens`.
    """
    if request.loss_fn not in LOSSES:
        raise UnknownNameError("loss", request.loss_fn, LOSSES)
    loss = LOSSES[request.loss_fn]
    for option, value in request.loss_fn_config.items():
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


def _check_datum(datum: TrainingDatum, name: str, loss: Loss, vocab_size: int, max_tokens: int) -> None:
    num_tokens = len(datum.tokens_T)
    if num_tokens == 0:
        raise InputError("model_input is empty; give at least one token")
    if num_tokens > max_tokens:
        raise InputError(f"model_input has {num_tokens} tokens; the model takes at most {max_tokens}")
    expected = loss.inputs | {"target_tokens"}
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
        if not np.isfinite(values).all():
            raise InputError(f"{key} holds NaN or infinity at position {int(np.argwhere(~np.isfinite(values))[0][0])}")


def check_tokens(name: str, tokens: NDArray[np.generic], vocab_size: int) -> None:
    """Raise InputError if a token is negative or not in the vocabulary."""
    is_bad = (tokens < 0) | (tokens >= vocab_size)  # type: ignore[operator]
    if is_bad.any():
        where = int(np.argwhere(is_bad)[0][0])
        raise InputError(
            f"{name} holds token {tokens[is_bad][0]} at position {where}; the vocabulary is 0 to {vocab_size - 1}"
        )


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
        values[key] = torch.from_numpy(np.concatenate([array.reshape(-1).astype(np.float32) for array in arrays])).to(
            device
        )
    sizes = [int(np.prod(shape)) for shape in shapes]
    return LossInputs(
        values=values,
        config={**loss.config, **{key: float(value) for key, value in request.loss_fn_config.items()}},
        datum_M=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(device),
    )
