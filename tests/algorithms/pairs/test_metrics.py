"""What is reported of pairs needs no torch where the service computes the loss, and is what torch would compute."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.base.kit import answered, datum

from cookhouse.algorithms.pairs.objective import (
    FusedPairLoss,
    mean_loss,
    pair_metrics,
    pairs_of_logprobs,
    pairs_of_sums,
)
from cookhouse.algorithms.pairs.reference import PairPayload
from cookhouse.engine.contract import PAIR_LOSSES as OF_ENGINE
from cookhouse.errors import InputError
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings
from cookhouse.training import PairLossOffer, Work
from cookhouse.weights.checkpoints import Cursor

SUMS = np.array([-6.0, -5.0, -9.0, -800.0, -1e-14, -0.3, -2.0, -2.0])
TOKENS = np.array([3.0, 2.0, 5.0, 4.0, 1.0, 1.0, 2.0, 2.0])
REFERENCE = np.array([[-4.0, -3.5], [-7.5, -5.0], [-0.1, -0.2], [-2.0, -2.0]])


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.parametrize("name", OF_ENGINE)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_loss_that_a_service_computes_is_the_same_of_arrays(name: str, smoothing: float) -> None:
    """Would catch a formula that holds only for tensors, and one that overflows far from the reference."""
    loss = BUILT_IN_PAIR_LOSSES[name]
    given: dict[str, Any] = {
        "pair_loss": name,
        **({"label_smoothing": smoothing} if "label_smoothing" in loss.reads else {}),
    }
    settings = PairLossSettings(**given)
    pairs = pairs_of_sums(SUMS, TOKENS, REFERENCE)
    tensors: PairLogprobs = PairLogprobs(**{field: torch.from_numpy(values) for field, values in vars(pairs).items()})
    expected = loss.function(tensors, settings).numpy()
    assert loss.takes_arrays
    np.testing.assert_allclose(loss.function(pairs, settings), expected, rtol=1e-12)
    assert mean_loss(loss, settings, pairs) == pytest.approx(float(expected.mean()), rel=1e-12)


def test_a_loss_that_takes_no_arrays_is_given_tensors() -> None:
    loss = PairLoss(function=lambda pairs, settings: torch.relu(settings.dpo_beta - pairs.chosen_P))
    assert not loss.takes_arrays
    assert mean_loss(loss, PairLossSettings(), pairs_of_sums(SUMS, TOKENS, REFERENCE)) == pytest.approx(4.35)


@pytest.mark.usefixtures("no_torch")
def test_metrics_of_a_loss_that_the_service_computed_need_no_torch() -> None:
    answer = datum([1, 2, 3, 4], weights=[0, 1, 0.5])
    offer = PairLossOffer(names=frozenset({"dpo"}), max_datums=1024, max_bytes=10**6)
    fused = FusedPairLoss(loss=BUILT_IN_PAIR_LOSSES["dpo"], settings=PairLossSettings(), offer=offer)
    work = Work(cursor=Cursor(), data_D=[answer, answer], payload=PairPayload(reference_P2=np.array([[-2.0, -2.0]])))
    _, output = answered([answer, answer], [[-1.0, 0.0], [-3.0, 0.0]])
    output.metrics["loss:sum"] = 0.25
    found = fused.metrics([(work, output)])
    assert found["train/dpo_loss"] == 0.25
    assert found["train/accuracy"] == 1.0
    assert found["train/margin"] == pytest.approx(0.2)
    assert (found["train/chosen_logprob"], found["train/chosen_tokens"]) == (-1.0, 1.5)


@pytest.mark.usefixtures("no_torch")
def test_held_out_pairs_need_no_torch_and_leave_the_prompt_out() -> None:
    """Would catch a logprob of a prompt's token, which may be minus infinity, that makes all NaN."""
    data = [datum([1, 2, 3, 4], weights=[0, 1, 0.5])] * 2
    logprobs: list[Any] = [np.array([-np.inf, -1.0, -2.0], np.float32), np.array([-1.0, -3.0, -2.0], np.float32)]
    loss, settings = BUILT_IN_PAIR_LOSSES["dpo"], PairLossSettings()
    pairs = pairs_of_logprobs(data, logprobs, np.zeros((1, 2)))
    found = pair_metrics(loss, settings, pairs, mean_loss(loss, settings, pairs))
    assert (found["chosen_logprob"], found["rejected_logprob"]) == (-2.0, -4.0)
    assert found["dpo_loss"] == pytest.approx(np.log1p(np.exp(-0.2)))
    with pytest.raises(InputError, match="a pair is two datums"):
        pairs_of_logprobs(data, logprobs[:1], np.zeros((1, 2)))
