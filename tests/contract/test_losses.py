"""Each built-in loss against a plain function of the logprobs through `forward_backward_custom`, over the wire."""

import math
from collections.abc import Callable

import pytest
import tinker
import torch
from tests.contract.calls import gradient_norm
from tests.contract.conftest import in_both_precisions
from tests.engine.numerics import MODEL, near_sum
from tinker import types
from torch import Tensor

Elementwise = Callable[[Tensor, dict[str, Tensor], dict[str, float]], Tensor]

_POLICY = ("logprobs", "advantages")


def _cross_entropy(lp: Tensor, inputs: dict[str, Tensor], _: dict[str, float]) -> Tensor:
    return -inputs["weights"] * lp


def _importance_sampling(lp: Tensor, inputs: dict[str, Tensor], _: dict[str, float]) -> Tensor:
    return -(lp - inputs["logprobs"]).exp() * inputs["advantages"]


def _surrogate(ratio: Tensor, advantages: Tensor, config: dict[str, float]) -> Tensor:
    bounded = ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])
    return -torch.minimum(ratio * advantages, bounded * advantages)


def _ppo(lp: Tensor, inputs: dict[str, Tensor], config: dict[str, float]) -> Tensor:
    return _surrogate((lp - inputs["logprobs"]).exp(), inputs["advantages"], config)


def _cispo(lp: Tensor, inputs: dict[str, Tensor], config: dict[str, float]) -> Tensor:
    ratio = (lp - inputs["logprobs"]).exp().detach()
    return -ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"]) * lp * inputs["advantages"]


def _dro(lp: Tensor, inputs: dict[str, Tensor], config: dict[str, float]) -> Tensor:
    return -(lp * inputs["advantages"] - config["beta"] / 2 * (lp - inputs["logprobs"]) ** 2)


def _gspo(lp: Tensor, inputs: dict[str, Tensor], config: dict[str, float]) -> Tensor:
    mask = inputs["sequence_ratio_mask"]
    mean = (((lp - inputs["logprobs"]) * mask).sum() / mask.sum()).detach()
    return _surrogate(mean.exp() * (lp - lp.detach()).exp(), inputs["advantages"], config)


_CLIP = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}

LOSSES: dict[types.LossFnType, tuple[Elementwise, tuple[str, ...], dict[str, float]]] = {
    "cross_entropy": (_cross_entropy, ("weights",), {}),
    "importance_sampling": (_importance_sampling, _POLICY, {}),
    "ppo": (_ppo, _POLICY, _CLIP),
    "cispo": (_cispo, _POLICY, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    "dro": (_dro, _POLICY, {"beta": 0.3}),
    "gspo": (_gspo, (*_POLICY, "sequence_ratio_mask"), _CLIP),
}


def _data(trainer: tinker.TrainingClient, names: tuple[str, ...]) -> list[types.Datum]:
    """Two datums; recorded logprobs lie around those of the model, on both sides of every threshold."""
    generator = torch.Generator().manual_seed(5)
    sequences = [[3, 17, 4, 9, 22, 11, 40, 7], [5, 6, 7, 8, 60]]
    plain = [
        types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={"target_tokens": types.TensorData(data=tokens[1:], dtype="int64")},
        )
        for tokens in sequences
    ]
    outputs = trainer.forward(plain, "cross_entropy").result().loss_fn_outputs
    data = []
    for datum, output in zip(plain, outputs, strict=True):
        now = torch.tensor(output["logprobs"].data)
        noise = torch.rand(len(now), generator=generator)
        values = {
            "weights": 2 * noise - 0.5,
            "logprobs": now + 0.6 * noise - 0.3,
            "advantages": torch.randn(len(now), generator=generator),
            "sequence_ratio_mask": (noise > 0.3).float(),
        }
        tensors = {name: types.TensorData(data=values[name].tolist(), dtype="float32") for name in names}
        data.append(types.Datum(model_input=datum.model_input, loss_fn_inputs={**datum.loss_fn_inputs, **tensors}))
    return data


@in_both_precisions
@pytest.mark.parametrize("name", LOSSES)
def test_the_built_in_loss_equals_the_custom_one(trainer: tinker.TrainingClient, name: types.LossFnType) -> None:
    """Would catch a formula, an option or an input that differs, by value and by the whole gradient.

    In bf16 by no more than in fp32: both take the same logprobs, and losses and gradients are computed in fp32.
    """
    function, names, config = LOSSES[name]
    data = _data(trainer, names)
    sign = 1.0

    def custom(data: list[types.Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        total = torch.zeros(())
        for datum, lp in zip(data, logprobs, strict=True):
            inputs = {name: torch.tensor(datum.loss_fn_inputs[name].data) for name in names}
            total = total + function(lp, inputs, config).sum()
        return sign * total, {}

    built_in = trainer.forward_backward(data, name, loss_fn_config=config or None).result()
    norm = gradient_norm(trainer)
    same = trainer.forward_backward_custom(data, custom).result()
    assert same.metrics["loss:sum"] == near_sum(built_in.metrics["loss:sum"])
    assert gradient_norm(trainer) == pytest.approx(norm, rel=MODEL)
    # The two gradients together, one of them negated, leave nothing but rounding.
    sign = -1.0
    trainer.forward_backward(data, name, loss_fn_config=config or None).result()
    trainer.forward_backward_custom(data, custom).result()
    assert norm > 0.1
    assert math.isfinite(norm)
    assert gradient_norm(trainer) < MODEL * norm
