"""Losses over pairs, computed in one pass, against the same formula over logprobs of a forward pass of its own."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import PAIR_LOSSES, ForwardBackward, ForwardBackwardOutput, TrainingDatum
from cookhouse.engine.train.losses import check_request
from cookhouse.engine.train.pairs import PAIR_LOSSES as IN_ENGINE
from cookhouse.errors import InputError
from cookhouse.losses import pair_losses
from cookhouse.losses.pair_losses import PairLogprobs
from cookhouse.settings import PairLossSettings
from tests.engine.conftest import VOCAB_SIZE, random_datums
from tests.engine.numerics import assert_gradients_near
from tests.engine.train.test_trainer import AddModel

LENGTHS = [12, 9, 40, 33, 13, 21, 5, 5]

CASES: dict[str, dict[str, Any]] = {
    "dpo": {},
    "cdpo": {"pair_loss": "dpo", "label_smoothing": 0.2},
    "dpo_norm": {"pair_loss": "dpo_norm"},
    "ipo": {"pair_loss": "ipo"},
    "orpo": {"pair_loss": "orpo"},
    "simpo": {"pair_loss": "simpo", "simpo_gamma": 0.3},
}


def pairs_of_datums(lengths: list[int] = LENGTHS) -> list[TrainingDatum]:
    """Datums whose last tokens are answers; those of a pair begin alike, with the whole prompt or more."""
    found = random_datums(lengths)
    for chosen, rejected in zip(found[0::2], found[1::2], strict=True):
        num_shared = max(len(each.tokens_T) // 2 for each in (chosen, rejected))
        rejected.tokens_T[:num_shared] = chosen.tokens_T[:num_shared]
    return [
        dataclasses.replace(
            datum,
            loss_fn_inputs={
                **datum.loss_fn_inputs,
                "weights": (np.arange(len(datum.tokens_T)) >= len(datum.tokens_T) // 2).astype(np.float32),
            },
        )
        for datum in found
    ]


def fused(name: str, data_D: list[TrainingDatum], reference_D: np.ndarray, **changes: Any) -> ForwardBackward:
    settings = PairLossSettings(**CASES[name])
    config = {"dpo_beta": settings.dpo_beta, "num_pairs": len(data_D) / 2}
    facts = pair_losses.BUILT_IN_PAIR_LOSSES[settings.pair_loss]
    config |= {option: getattr(settings, option) for option in facts.reads}
    if facts.needs_reference:
        data_D = [
            dataclasses.replace(
                datum,
                # Any values that add up to it.
                loss_fn_inputs={
                    **datum.loss_fn_inputs,
                    "reference_logprobs": np.array([total - 2.0, 2.0], dtype=np.float32),
                },
            )
            for datum, total in zip(data_D, reference_D, strict=True)
        ]
    request = ForwardBackward(model_id="m", data_D=data_D, loss_fn=settings.pair_loss, loss_fn_config=config)
    return dataclasses.replace(request, **changes)


def run(engine: TorchEngine, *requests: ForwardBackward) -> list[ForwardBackwardOutput]:
    found = engine.forward_backward(requests)
    assert all(isinstance(output, ForwardBackwardOutput) for output in found), found
    return found  # type: ignore[return-value]


def in_two_passes(
    engine: TorchEngine, name: str, data_D: list[TrainingDatum], reference_D: np.ndarray
) -> tuple[float, list[float], torch.Tensor]:
    """The mean loss, Σ w·logprob of each answer, and the gradient, as a client computes them."""
    settings = PairLossSettings(**CASES[name])
    plain = ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy", forward_only=True)
    (output,) = run(engine, plain)
    lp_D = [torch.tensor(logprobs, requires_grad=True) for logprobs in output.logprobs_D]
    weights_D = [torch.from_numpy(datum.loss_fn_inputs["weights"]).double() for datum in data_D]
    sums_D = torch.stack([(w * lp.double()).sum() for w, lp in zip(weights_D, lp_D, strict=True)])
    tokens_D = torch.stack([w.sum() for w in weights_D])
    reference = torch.tensor(reference_D.astype(np.float32).astype(np.float64))
    pairs = PairLogprobs(
        chosen_P=sums_D[0::2],
        rejected_P=sums_D[1::2],
        reference_chosen_P=reference[0::2],
        reference_rejected_P=reference[1::2],
        chosen_tokens_P=tokens_D[0::2],
        rejected_tokens_P=tokens_D[1::2],
    )
    loss = getattr(pair_losses, settings.pair_loss)(pairs, settings).mean()
    gradients_D = torch.autograd.grad(loss, lp_D)
    linear = [
        dataclasses.replace(datum, loss_fn_inputs={**datum.loss_fn_inputs, "weights": -gradient.numpy()})
        for datum, gradient in zip(data_D, gradients_D, strict=True)
    ]
    run(engine, ForwardBackward(model_id="m", data_D=linear, loss_fn="cross_entropy"))
    gradient = engine._model("m").gradient
    found = gradient.clone()
    gradient.zero_()
    return float(loss.detach()), sums_D.tolist(), found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget_tokens", [None, 30])
def test_one_pass_equals_two(
    engine: TorchEngine, add_model: AddModel, monkeypatch: pytest.MonkeyPatch, name: str, budget_tokens: int | None
) -> None:
    # Catches pairs that passes part or reorder (a budget of 30 holds no pair of the longer ones), a prompt that is laid
    # once and seen by one answer only, answers that see each other, a wrong denominator, and an exchanged reference.
    monkeypatch.setattr(engine, "_budget_tokens", budget_tokens)
    add_model("m")
    data_D = pairs_of_datums()
    reference_D = np.round(np.random.default_rng(1).uniform(-80.0, -20.0, len(data_D)), 3)
    loss, sums_D, gradient = in_two_passes(engine, name, data_D, reference_D)
    (output,) = run(engine, fused(name, data_D, reference_D))
    assert output.metrics["loss:sum"] == pytest.approx(loss, rel=1e-5)
    assert [float(values.sum(dtype=np.float64)) for values in output.logprobs_D] == pytest.approx(sums_D, rel=1e-6)
    assert_gradients_near(engine._model("m").gradient, gradient)


def test_requests_of_a_batch_add_up_to_its_mean_and_share_passes_with_other_models(
    engine: TorchEngine, add_model: AddModel
) -> None:
    # Catches a mean over the pairs of a request, and pairs that take a neighbor's datum where models share a pass.
    add_model("m")
    add_model("other", seed=3)
    data_D, reference_D = pairs_of_datums(), np.linspace(-60.0, -20.0, len(LENGTHS))
    (whole,) = run(engine, fused("dpo", data_D, reference_D))
    gradient = engine._model("m").gradient.clone()
    engine._model("m").gradient.zero_()
    beside = ForwardBackward(model_id="other", data_D=random_datums([3, 8, 30]), loss_fn="cross_entropy")
    config = {"dpo_beta": 0.1, "num_pairs": len(data_D) / 2}
    parts = [fused("dpo", data_D[:2], reference_D[:2]), fused("dpo", data_D[2:], reference_D[2:])]
    parts = [dataclasses.replace(part, loss_fn_config=config) for part in parts]
    first, _, second = run(engine, parts[0], beside, parts[1])
    total = first.metrics["loss:sum"] + second.metrics["loss:sum"]
    assert total == pytest.approx(whole.metrics["loss:sum"], rel=1e-6)
    assert_gradients_near(engine._model("m").gradient, gradient)


@pytest.mark.parametrize("budget_tokens", [None, 30])
def test_logprobs_of_answers_are_returned_where_they_are_asked_for(
    engine: TorchEngine, add_model: AddModel, monkeypatch: pytest.MonkeyPatch, budget_tokens: int | None
) -> None:
    # Catches logprobs of a neighbor's tokens, or of the prompt's, which are not computed, and a sum that they change.
    monkeypatch.setattr(engine, "_budget_tokens", budget_tokens)
    add_model("m")
    data_D = pairs_of_datums()
    asked = fused("dpo", data_D, np.zeros(len(LENGTHS)), forward_only=True)
    (sums,) = run(engine, asked)
    config = {**asked.loss_fn_config, "token_logprobs": 1.0}
    (output,) = run(engine, dataclasses.replace(asked, loss_fn_config=config))
    plain = ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy", forward_only=True)
    (expected,) = run(engine, plain)
    assert output.metrics == sums.metrics
    for datum, found, total, all_T in zip(data_D, output.logprobs_D, sums.logprobs_D, expected.logprobs_D, strict=True):
        assert found[:2].tolist() == total.tolist()
        assert found[2:] == pytest.approx(all_T[datum.loss_fn_inputs["weights"] != 0], rel=1e-5, abs=1e-5)


def test_forward_leaves_no_gradient(engine: TorchEngine, add_model: AddModel) -> None:
    add_model("m")
    run(engine, fused("dpo", pairs_of_datums(), np.zeros(len(LENGTHS)), forward_only=True))
    assert not engine._model("m").gradient.any()


def _without(name: str) -> Any:
    def change(data_D: list[TrainingDatum]) -> list[TrainingDatum]:
        inputs = {key: value for key, value in data_D[1].loss_fn_inputs.items() if key != name}
        return [data_D[0], dataclasses.replace(data_D[1], loss_fn_inputs=inputs), *data_D[2:]]

    return change


def _with(name: str, values: list[float]) -> Any:
    def change(data_D: list[TrainingDatum]) -> list[TrainingDatum]:
        inputs = {**data_D[1].loss_fn_inputs, name: np.array(values, dtype=np.float32)}
        return [data_D[0], dataclasses.replace(data_D[1], loss_fn_inputs=inputs), *data_D[2:]]

    return change


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (lambda data_D: data_D[:3], {}, "dpo is a loss over pairs and the request has 3 datums"),
        (lambda data_D: [data_D[0], data_D[0]], {}, "datums 0 and 1: chosen and rejected are the same"),
        (_without("reference_logprobs"), {}, "datum 1: dpo lacks reference_logprobs"),
        (_without("weights"), {}, "datum 1: dpo lacks weights"),
        (_with("weights", [0.0] * 4), {}, "datum 1: weights of dpo must be at least 0, and above 0 for a token"),
        (_with("weights", [0.0, -1.0, 1.0, 1.0]), {}, "datum 1: weights of dpo must be at least 0"),
        (_with("reference_logprobs", []), {}, "reference_logprobs has shape"),
        (_with("reference_logprobs", [np.nan]), {}, "reference_logprobs holds NaN or infinity"),
        (None, {"dpo_beta": 0.0}, "option dpo_beta of dpo is 0.0; it must be above 0"),
        (None, {"dpo_beta": -0.1}, "option dpo_beta of dpo is -0.1"),
        (None, {"label_smoothing": 0.5}, "label_smoothing of dpo is 0.5; it must be at least 0 and below 0.5"),
        (None, {"num_pairs": 1.5}, "num_pairs of dpo is 1.5; it must be 1 or at least 2"),
        (None, {"simpo_gamma": 1.0}, "option of dpo"),
        (None, {"token_logprobs": 2.0}, "option token_logprobs of dpo is 2; it must be 0 or 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(change: Any, config: dict[str, float], said: str) -> None:
    data_D = fused("dpo", pairs_of_datums([4, 4, 4, 4]), np.zeros(4)).data_D
    given = list(data_D) if change is None else change(list(data_D))
    request = ForwardBackward(model_id="m", data_D=given, loss_fn="dpo", loss_fn_config=config)
    with pytest.raises(InputError, match=said):
        check_request(request, VOCAB_SIZE, 100)


def test_the_losses_that_are_offered_are_those_there_are() -> None:
    assert set(PAIR_LOSSES) == set(IN_ENGINE)
