"""Catches a loss whose value or gradient differs from its formula, computed here position by position in float64."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import PAIR_LOSSES, ForwardBackward, ForwardBackwardOutput, LoraSpec, TrainingDatum
from cookhouse.engine.train.losses import LOSSES, loss_inputs
from tests.engine.numerics import assert_gradients_near, near_sum

LENGTHS = (4, 7, 1)


def _request(loss_fn: str, config: dict[str, float | str]) -> ForwardBackward:
    rng = np.random.default_rng(0)
    names = LOSSES[loss_fn].inputs
    data_D = []
    for length in LENGTHS:
        inputs = {
            "weights": rng.normal(size=length),
            "logprobs": rng.normal(-2.0, 0.7, length),
            "advantages": rng.normal(size=length) * (rng.random(length) < 0.8),
            "sequence_ratio_mask": (rng.random(length) < 0.7).astype(float),
            "is_sampled": (rng.random(length) < 0.7).astype(float),
        }
        arrays = {name: inputs[name].astype(np.float32) for name in names}
        targets = {"target_tokens": np.zeros(length, np.int64)}
        data_D.append(TrainingDatum(tokens_T=np.zeros(length, np.int64), loss_fn_inputs={**targets, **arrays}))
    return ForwardBackward(model_id="m", data_D=data_D, loss_fn=loss_fn, loss_fn_config=config)


def _policy(low: float, high: float) -> Callable[[float, float, float], tuple[float, float]]:
    """PPO by cases: the clipped branch is constant in lp."""

    def value(lp: float, q: float, advantage: float) -> tuple[float, float]:
        ratio = math.exp(lp - q)
        bounded = min(max(ratio, low), high)
        if ratio * advantage <= bounded * advantage:
            return -ratio * advantage, -ratio * advantage
        return -bounded * advantage, 0.0

    return value


def _expected(request: ForwardBackward, lp_M: np.ndarray) -> tuple[list[float], list[float]]:
    """Elementwise loss, and d(sum of loss)/d(lp), from the formulas."""
    losses, gradients, start = [], [], 0
    for datum in request.data_D:
        fields = {key: value.astype(np.float64) for key, value in datum.loss_fn_inputs.items()}
        length = len(datum.tokens_T)
        lps = lp_M[start : start + length]
        start += length
        log_ratios = [lp - q for lp, q in zip(lps, fields.get("logprobs", lps), strict=True)]
        counted = [r for r, m in zip(log_ratios, fields.get("sequence_ratio_mask", [0] * length), strict=True) if m]
        sequence_ratio = math.exp(sum(counted) / len(counted)) if counted else 1.0
        for t, lp in enumerate(lps):
            advantage = fields["advantages"][t] if "advantages" in fields else 0.0
            ratio = math.exp(log_ratios[t])
            match request.loss_fn:
                case "cross_entropy":
                    value, slope = -fields["weights"][t] * lp, -fields["weights"][t]
                case "importance_sampling":
                    value, slope = -ratio * advantage, -ratio * advantage
                case "ppo":
                    value, slope = _policy(0.9, 1.1)(lp, fields["logprobs"][t], advantage)
                case "cispo":
                    bounded = min(max(ratio, 0.5), 1.5)
                    value, slope = -bounded * lp * advantage, -bounded * advantage
                case "dro":
                    value = -(lp * advantage - 0.5 * 0.3 * log_ratios[t] ** 2)
                    slope = -(advantage - 0.3 * log_ratios[t])
                case "stable_reinforce":
                    weight = fields["is_sampled"][t] * min(ratio, 1.3)
                    value = weight * (0.5 * 0.4 * log_ratios[t] ** 2 - advantage * lp)
                    slope = weight * (0.4 * log_ratios[t] - advantage)
                case _:
                    value, slope = _policy(0.9, 1.1)(math.log(sequence_ratio), 0.0, advantage)
            losses.append(value)
            gradients.append(slope)
    return losses, gradients


@pytest.mark.parametrize(
    ("loss_fn", "config"),
    [
        ("cross_entropy", {}),
        ("importance_sampling", {}),
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("cispo", {"clip_low_threshold": 0.5, "clip_high_threshold": 1.5}),
        ("dro", {"beta": 0.3}),
        ("gspo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("stable_reinforce", {"clip_high_threshold": 1.3, "kl_coeff": 0.4}),
    ],
)
def test_value_and_gradient_equal_the_formula(loss_fn: str, config: dict[str, float | str], device: str) -> None:
    request = _request(loss_fn, config)
    inputs = loss_inputs(request, request.data_D, torch.device(device))
    lp = np.random.default_rng(1).normal(-2.0, 0.7, sum(LENGTHS)).astype(np.float32)
    lp_M = torch.from_numpy(lp).to(device).requires_grad_()
    loss_M = LOSSES[loss_fn].function(lp_M, inputs)
    (gradient_M,) = torch.autograd.grad(loss_M.sum(), lp_M)
    losses, gradients = _expected(request, lp.astype(np.float64))
    np.testing.assert_allclose(loss_M.detach().cpu().numpy(), losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient_M.cpu().numpy(), gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo", "cispo"])
def test_prompt_positions_with_a_huge_ratio_and_no_advantage_count_for_nothing(loss_fn: str) -> None:
    zero = np.zeros(1, np.float32)
    token = np.zeros(1, np.int64)
    datum = TrainingDatum(
        tokens_T=token, loss_fn_inputs={"target_tokens": token, "logprobs": zero - 200.0, "advantages": zero}
    )
    request = ForwardBackward(model_id="m", data_D=[datum], loss_fn=loss_fn)
    lp_M = torch.zeros(1, requires_grad=True)
    loss = LOSSES[loss_fn].function(lp_M, loss_inputs(request, [datum], torch.device("cpu"))).sum()
    (gradient_M,) = torch.autograd.grad(loss, lp_M)
    assert float(loss.detach()) == 0.0
    assert gradient_M.eq(0).all()


def test_stable_reinforce_counts_sampled_tokens_alone_and_takes_any_ratio() -> None:
    """Would catch a prompt position that is pulled towards a log-probability of 0, and an infinite weight."""
    lp_M = torch.tensor([-3.0, -1.0, -200.0], requires_grad=True)
    arrays = {"logprobs": [0.0, -200.0, -1.0], "advantages": [0.0, 1.0, 1.0], "is_sampled": [0.0, 1.0, 1.0]}
    inputs = {name: np.array(values, np.float32) for name, values in arrays.items()}
    tokens = np.zeros(3, np.int64)
    datum = TrainingDatum(tokens_T=tokens, loss_fn_inputs={"target_tokens": tokens, **inputs})
    request = ForwardBackward(
        model_id="m", data_D=[datum], loss_fn="stable_reinforce", loss_fn_config={"kl_coeff": 0.0}
    )
    loss = LOSSES["stable_reinforce"].function(lp_M, loss_inputs(request, [datum], torch.device("cpu"))).sum()
    (gradient_M,) = torch.autograd.grad(loss, lp_M)
    assert gradient_M.tolist() == [0.0, -2.0, 0.0]


def test_defaults_are_the_published_ones() -> None:
    assert {name: dict(loss.config) for name, loss in LOSSES.items() if name not in PAIR_LOSSES} == {
        "cross_entropy": {},
        "importance_sampling": {},
        "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
        "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
        "dro": {"beta": 0.05},
        "gspo": {"clip_low_threshold": 0.9997, "clip_high_threshold": 1.0004},
        "stable_reinforce": {"kl_coeff": 0.05, "clip_high_threshold": 2.0},
    }


def test_losses_and_options_that_share_a_pass_are_each_their_own(qwen3_folder: str) -> None:
    """Would catch a loss, an option or an input of one request used for its neighbors in the pass."""
    options: list[tuple[str, dict[str, float | str]]] = [
        ("cross_entropy", {}),
        ("ppo", {"clip_high_threshold": 1.05}),
        ("ppo", {"clip_low_threshold": 0.5, "clip_high_threshold": 3.0}),
        ("dro", {"beta": 0.05}),
        ("dro", {"beta": 2.0}),
        ("gspo", {"clip_low_threshold": 0.2, "clip_high_threshold": 5.0}),
        ("cispo", {}),
        ("importance_sampling", {}),
        ("stable_reinforce", {}),
        ("stable_reinforce", {"kl_coeff": 1.0, "clip_high_threshold": 0.5}),
    ]
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
    requests = []
    for index, (loss_fn, config) in enumerate(options):
        engine.create_model(str(index), qwen3_folder, LoraSpec(rank=2 + index, seed=index))
        requests.append(dataclasses.replace(_request(loss_fn, config), model_id=str(index)))
    for pairs in ([(request,) for request in requests], [tuple(requests)]):
        outputs = [output for group in pairs for output in engine.forward_backward(group)]
        losses = [output.metrics["loss:sum"] for output in outputs if isinstance(output, ForwardBackwardOutput)]
        gradients = [engine._model(str(index)).gradient.clone() for index in range(len(options))]
        for index in range(len(options)):
            engine._model(str(index)).gradient.zero_()
        if len(pairs) > 1:
            alone = losses, gradients
    assert losses == [near_sum(loss) for loss in alone[0]]
    assert len({round(loss, 4) for loss in losses}) == len(options)
    for together, separate in zip(gradients, alone[1], strict=True):
        assert_gradients_near(together, separate)
