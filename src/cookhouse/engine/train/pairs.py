"""Losses over pairs, computed here from one forward pass: datums are chosen, rejected, chosen, and so on.

An answer is the tokens with weight. `reference_logprobs` are values that add up, in double precision, to the answer's
Σ w·logprob under a reference. The loss is the sum over the pairs of a request, divided by `num_pairs`: those of a batch
that comes in several requests. A loss that compares a pair with the others of its batch is not among them. With
`token_logprobs` 1 the logprobs of the answer's tokens are returned behind their sum.

Legend: M targets, D datums, P pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cookhouse.engine import contract
from cookhouse.engine.contract import ForwardBackward
from cookhouse.engine.train.loss import Loss, LossInputs
from cookhouse.errors import InputError
from cookhouse.losses.pair_losses import BOUNDS, BUILT_IN_PAIR_LOSSES, PairLogprobs, PairLoss

_REFERENCE = "reference_logprobs"
TOKEN_LOGPROBS = "token_logprobs"
_OF_REQUEST = {"num_pairs": 1.0, TOKEN_LOGPROBS: 0.0}
"""Options that no formula reads, with their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of a request. Those that its loss does not have are never read."""

    dpo_beta: float
    label_smoothing: float = 0.0
    simpo_gamma: float = 0.0


def _loss(facts: PairLoss) -> Loss:
    def compute(lp_M: Tensor, inputs: LossInputs) -> Tensor:
        options = {name: value for name, value in inputs.config.items() if name not in _OF_REQUEST}
        losses_P: Tensor = facts.function(_pairs(lp_M, inputs), _Options(**options))
        return losses_P / inputs.config["num_pairs"]

    return Loss(
        function=compute,
        inputs=frozenset({"weights"}),
        sums=frozenset({_REFERENCE} if facts.needs_reference else ()),
        config={**facts.options, **_OF_REQUEST},
        group_datums=2,
        check=_check,
    )


def _pairs(lp_M: Tensor, inputs: LossInputs) -> PairLogprobs:
    weights_M = inputs.values["weights"].double()
    num_datums = int(inputs.datum_M[-1]) + 1
    nothing_D = weights_M.new_zeros(num_datums)
    sums_D = nothing_D.index_add(0, inputs.datum_M, weights_M * lp_M.double())
    tokens_D = nothing_D.index_add(0, inputs.datum_M, weights_M)
    reference_D = inputs.sums_D.get(_REFERENCE, nothing_D)
    return PairLogprobs(
        chosen_P=sums_D[0::2],
        rejected_P=sums_D[1::2],
        reference_chosen_P=reference_D[0::2],
        reference_rejected_P=reference_D[1::2],
        chosen_tokens_P=tokens_D[0::2],
        rejected_tokens_P=tokens_D[1::2],
    )


def _check(request: ForwardBackward) -> None:
    num_datums = len(request.data_D)
    if num_datums % 2:
        raise InputError(
            f"{request.loss_fn} is a loss over pairs and the request has {num_datums} datums; send chosen, rejected, "
            "chosen and so on, never one without the other"
        )
    _check_options(request.loss_fn, request.loss_fn_config, num_datums // 2)
    for index, datum in enumerate(request.data_D):
        weights = datum.loss_fn_inputs["weights"]
        if (weights < 0).any() or not weights.any():
            raise InputError(
                f"datum {index}: weights of {request.loss_fn} must be at least 0, and above 0 for a token of the "
                "answer; an answer without tokens cannot be compared"
            )
    for index in range(0, num_datums, 2):
        chosen, rejected = request.data_D[index : index + 2]
        if np.array_equal(chosen.tokens_T, rejected.tokens_T) and np.array_equal(
            chosen.loss_fn_inputs["target_tokens"], rejected.loss_fn_inputs["target_tokens"]
        ):
            raise InputError(
                f"datums {index} and {index + 1}: chosen and rejected are the same; nothing could be learned from them"
            )


def _check_options(name: str, given: Mapping[str, float | str], num_pairs: int) -> None:
    config = {**PAIR_LOSSES[name].config, **{option: float(value) for option, value in given.items()}}
    for option in config.keys() & BOUNDS.keys():
        BOUNDS[option].check(f"option {option} of {name}", config[option])
    allowed = {
        "num_pairs": (config["num_pairs"] == 1 or config["num_pairs"] >= num_pairs, f"1 or at least {num_pairs}"),
        TOKEN_LOGPROBS: (config[TOKEN_LOGPROBS] in (0, 1), "0 or 1"),
    }
    for option, (is_allowed, bound) in allowed.items():
        if not is_allowed:
            raise InputError(f"option {option} of {name} is {config[option]:g}; it must be {bound}")


PAIR_LOSSES: Mapping[str, Loss] = {name: _loss(BUILT_IN_PAIR_LOSSES[name]) for name in contract.PAIR_LOSSES}
