"""The made-up service computes the losses of the real engine, and their derivatives."""

from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.engine.contract import PAIR_LOSSES
from cookhouse.engine.train.loss import LossInputs
from cookhouse.engine.train.losses import LOSSES
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.policy_losses import OWN_LOSSES
from cookhouse.training.clients.fake_losses import token_losses

RNG = np.random.default_rng(0)
LP_T = -RNG.uniform(0.1, 3.0, 40)
INPUTS: dict[str, Any] = {
    "weights": RNG.uniform(0, 1, 40),
    "logprobs": LP_T + RNG.normal(scale=0.4, size=40),
    "advantages": np.where(RNG.random(40) < 0.2, 0.0, RNG.normal(size=40)),
    "sequence_ratio_mask": (RNG.random(40) < 0.7).astype(float),
}


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {*PAIR_LOSSES, *OWN_LOSSES}))
def test_losses_and_derivatives_are_the_engines(name: str) -> None:
    loss = LOSSES[name]
    values = {key: torch.tensor(INPUTS[key], dtype=torch.float64) for key in loss.inputs}
    lp_T = torch.tensor(LP_T, requires_grad=True)
    inputs = LossInputs(values=values, config=dict(loss.config), datum_M=torch.zeros(40, dtype=torch.long))
    expected_T = loss.function(lp_T, inputs)
    [expected_slope_T] = torch.autograd.grad(expected_T.sum(), [lp_T])
    loss_T, slope_T = token_losses(name, LP_T, INPUTS, None)
    # gspo clips within a thousandth; float64 rounds at 1e-16 of numbers near 1
    np.testing.assert_allclose(loss_T, expected_T.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(slope_T, expected_slope_T.numpy(), atol=1e-12)


def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown loss 'pppo'; did you mean ppo"):
        token_losses("pppo", LP_T, INPUTS, None)
    with pytest.raises(UnknownNameError, match="unknown option of dro 'clip'"):
        token_losses("dro", LP_T, INPUTS, {"clip": 1.0})
    with pytest.raises(InputError, match="importance_sampling lacks advantages, logprobs"):
        token_losses("importance_sampling", LP_T, {"weights": INPUTS["weights"]}, None)
