"""Catches an optimizer step that differs from AdamW, reports a clipped norm, or survives a broken gradient."""

import math

import pytest
import torch

from cookhouse.engine.contract import AdamStep, LoraSpec
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import AdapterLayout, LoraSite
from cookhouse.errors import InputError
from tests.engine.conftest import noise


@pytest.fixture
def adapter(device: str) -> Adapter:
    site = LoraSite(name="layer", part="attn", in_features=5, out_features=7)
    return Adapter.create("base", AdapterLayout((site,), LoraSpec(rank=2, seed=1)), torch.device(device))


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize(("beta1", "beta2", "eps"), [(0.9, 0.95, 1e-8), (0.5, 0.7, 0.1)])
def test_steps_equal_torch_adamw(adapter: Adapter, clip: float, beta1: float, beta2: float, eps: float) -> None:
    parameter = torch.nn.Parameter(adapter.params.clone())
    optimizer = torch.optim.AdamW([parameter], lr=0.01, betas=(beta1, beta2), eps=eps, weight_decay=0.1)
    settings = AdamStep(learning_rate=0.01, beta1=beta1, beta2=beta2, eps=eps, weight_decay=0.1, grad_clip_norm=clip)
    for step in range(5):
        gradient = noise(adapter.params, step)
        adapter.gradient.copy_(gradient)
        parameter.grad = gradient.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_([parameter], clip)
        optimizer.step()
        metrics = adapter.step(settings)
        assert metrics["grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-6)
    torch.testing.assert_close(adapter.params, parameter.detach(), rtol=1e-5, atol=1e-7)
    assert adapter.gradient.eq(0).all()


def test_a_gradient_that_is_not_finite_is_discarded_and_said(adapter: Adapter) -> None:
    before = adapter.params.clone()
    adapter.gradient[3] = math.nan
    with pytest.raises(InputError, match="not finite"):
        adapter.step(AdamStep(learning_rate=0.01))
    assert torch.equal(adapter.params, before)
    assert adapter.gradient.eq(0).all()
    assert adapter.num_steps == 0


@pytest.mark.parametrize("field", ["learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_bad_hyperparameters_are_refused_by_name(adapter: Adapter, field: str, value: float) -> None:
    adapter.gradient.fill_(1.0)
    before = adapter.params.clone()
    with pytest.raises(InputError, match=field):
        adapter.step(AdamStep(**{"learning_rate": 0.1, field: value}))
    assert torch.equal(adapter.params, before)
    assert adapter.gradient.eq(1.0).all()


def test_frozen_weights_do_not_follow_the_adapter(adapter: Adapter) -> None:
    frozen = adapter.frozen_weights(torch.float32)
    adapter.params.add_(1.0)
    assert not torch.equal(frozen.flat, adapter.params)
