"""Each loss over pairs against its formula in double precision, value and gradient, written down independently."""

from collections.abc import Callable
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.pair_losses import PAIR_LOSSES, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings

# Of four pairs: Σ logprob of chosen and rejected, the same under the reference, and tokens.
CHOSEN, REJECTED = [-3.0, -9.5, -0.7, -20.0], [-4.0, -2.0, -6.25, -21.0]
REFERENCE_CHOSEN, REFERENCE_REJECTED = [-4.0, -9.0, -1.5, -19.0], [-2.0, -3.0, -6.0, -23.5]
CHOSEN_TOKENS, REJECTED_TOKENS = [2, 5, 3, 7], [4, 1, 3, 9]


def sigma(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


def logit(p: float) -> float:
    return log(p / (1.0 - p))


def dpo(c: float, r: float, rc: float, rr: float, *_: Any, beta: float = 0.1) -> float:
    return -log(sigma(beta * ((c - rc) - (r - rr))))


def cdpo(c: float, r: float, rc: float, rr: float, *_: Any) -> float:
    z = 0.1 * ((c - rc) - (r - rr))
    return -0.8 * log(sigma(z)) - 0.2 * log(sigma(-z))


def dpo_norm(c: float, r: float, rc: float, rr: float, nc: int, nr: int) -> float:
    return -log(sigma(0.1 * ((c - rc) / nc - (r - rr) / nr)))


def ipo(c: float, r: float, rc: float, rr: float, *_: Any) -> float:
    return (float(np.log(exp(c) * exp(rr) / (exp(r) * exp(rc)))) - 5.0) ** 2


def simpo(c: float, r: float, _rc: float, _rr: float, nc: int, nr: int) -> float:
    return -log(sigma(2.0 / nc * c - 2.0 / nr * r - 1.0))


def orpo(c: float, r: float, _rc: float, _rr: float, nc: int, nr: int) -> float:
    return -c / nc - 0.1 * log(sigma(logit(exp(c / nc)) - logit(exp(r / nr))))


_Z_CHOSEN = max(0.0, sum(c - rc for c, rc in zip(CHOSEN, REFERENCE_CHOSEN, strict=True)) / 4)
_Z_REJECTED = max(0.0, sum(r - rr for r, rr in zip(REJECTED, REFERENCE_REJECTED, strict=True)) / 4)


def kto(c: float, r: float, rc: float, rr: float, *_: Any) -> float:
    return 0.5 * (1 - sigma(0.1 * ((c - rc) - _Z_REJECTED))) + 0.5 * (1 - sigma(0.1 * (_Z_CHOSEN - (r - rr))))


CASES: dict[str, tuple[dict[str, Any], Callable[..., float]]] = {
    "dpo": ({}, dpo),
    "cdpo": ({"label_smoothing": 0.2}, cdpo),
    "dpo_norm": ({"pair_loss": "dpo_norm"}, dpo_norm),
    "ipo": ({"pair_loss": "ipo"}, ipo),
    "kto": ({"pair_loss": "kto"}, kto),
    "orpo": ({"pair_loss": "orpo"}, orpo),
    "simpo": ({"pair_loss": "simpo"}, simpo),
}


def logprobs(*, chosen: Any = CHOSEN, rejected: Any = REJECTED) -> PairLogprobs:
    def tensor(values: Any) -> torch.Tensor:
        return values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)

    return PairLogprobs(
        chosen_P=tensor(chosen),
        rejected_P=tensor(rejected),
        reference_chosen_P=tensor(REFERENCE_CHOSEN),
        reference_rejected_P=tensor(REFERENCE_REJECTED),
        chosen_tokens_P=tensor(CHOSEN_TOKENS),
        rejected_tokens_P=tensor(REJECTED_TOKENS),
    )


def columns(chosen: list[float], rejected: list[float]) -> Any:
    return zip(chosen, rejected, REFERENCE_CHOSEN, REFERENCE_REJECTED, CHOSEN_TOKENS, REJECTED_TOKENS, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_each_loss_and_its_gradient_are_those_of_its_formula(name: str) -> None:
    # Catches swapped answers, a reference with the wrong sign, a missing β, and sums where means belong.
    given, formula = CASES[name]
    settings = PairLossSettings(**given)
    loss = PAIR_LOSSES.find(settings.pair_loss)
    chosen_P = torch.tensor(CHOSEN, dtype=torch.float64, requires_grad=True)
    rejected_P = torch.tensor(REJECTED, dtype=torch.float64, requires_grad=True)
    loss_P = loss.function(logprobs(chosen=chosen_P, rejected=rejected_P), settings)
    expected = [formula(*each) for each in columns(CHOSEN, REJECTED)]
    np.testing.assert_allclose(loss_P.detach().numpy(), expected, rtol=1e-12)

    found = torch.autograd.grad(loss_P.mean(), [chosen_P, rejected_P])
    step = 1e-6
    for side, gradient_P in enumerate(found):
        for index in range(4):
            moved = []
            for sign in (1, -1):
                values = [list(CHOSEN), list(REJECTED)]
                values[side][index] += sign * step
                moved.append(sum(formula(*each) for each in columns(*values)) / 4)
            # A central difference is off by step² and by the rounding of the loss over the step.
            assert gradient_P[index].item() == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6, abs=1e-9)


def test_the_known_value_of_dpo() -> None:
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    pairs = PairLogprobs(
        chosen_P=one,
        rejected_P=-2 * one,
        reference_chosen_P=zero,
        reference_rejected_P=zero,
        chosen_tokens_P=one,
        rejected_tokens_P=one,
    )
    settings = PairLossSettings(dpo_beta=0.1)
    assert PAIR_LOSSES.find("dpo").function(pairs, settings).item() == pytest.approx(0.554355, abs=5e-7)
    rewards = [reward_P.item() for reward_P in PAIR_LOSSES.find("dpo").rewards(pairs, settings)]
    assert rewards == pytest.approx([0.1, -0.2])


def test_losses_stay_finite_where_a_model_is_certain() -> None:
    # Catches an overflow of log(1 + exp) and the odds of a probability of 1.
    for name in ("dpo", "dpo_norm", "ipo", "kto", "orpo", "simpo"):
        chosen_P = torch.tensor([0.0, -5000.0, 0.0, -1e-9], dtype=torch.float64, requires_grad=True)
        settings = PairLossSettings(pair_loss=name)
        loss_P = PAIR_LOSSES.find(name).function(logprobs(chosen=chosen_P, rejected=[-5000.0, 0.0, 0.0, 0.0]), settings)
        (gradient_P,) = torch.autograd.grad(loss_P.mean(), [chosen_P])
        assert torch.isfinite(loss_P).all(), name
        assert torch.isfinite(gradient_P).all(), name


def test_rewards_are_per_token_where_the_loss_is() -> None:
    rewards = PAIR_LOSSES.find("dpo_norm").rewards(logprobs(), PairLossSettings())[0]
    assert rewards.tolist() == pytest.approx([0.1 * 1.0 / 2, 0.1 * -0.5 / 5, 0.1 * 0.8 / 3, 0.1 * -1.0 / 7])


def own_loss(pairs: PairLogprobs, settings: PairLossSettings) -> torch.Tensor:
    return settings.dpo_beta * (pairs.rejected_P - pairs.chosen_P)


def test_a_loss_of_the_users_own_is_a_function() -> None:
    loss = PAIR_LOSSES.find(f"{__file__}:own_loss")
    assert isinstance(loss, PairLoss)
    assert (loss.needs_reference, loss.is_per_token) == (True, False)
    with pytest.raises(UnknownNameError, match="dpo"):
        PAIR_LOSSES.find("dqo")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dpo_beta": 0.0}, "dpo_beta is 0.0; it must be above 0"),
        ({"dpo_beta": -1.0}, "dpo_beta is -1.0"),
        ({"label_smoothing": 0.5}, "at least 0 and below 0.5"),
        ({"label_smoothing": 0.1, "pair_loss": "ipo"}, "label_smoothing=0.1 would change nothing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PairLossSettings(**given)


def test_beta_of_simpo_is_its_own() -> None:
    assert (PairLossSettings().dpo_beta, PairLossSettings(pair_loss="simpo").dpo_beta) == (0.1, 2.0)
