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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 1e30}, "learning_rate is 1e\\+30; it must be at least 0 and at most 1000"),
        ({"eps": 0.0}, "eps is 0.0; it must be above 0"),
        ({"learning_rate": 10.0, "weight_decay": 10.0}, "their product must be at most 1"),
    ],
)
def test_what_would_destroy_the_weights_is_refused(adapter: Adapter, settings: dict[str, float], message: str) -> None:
    """Catches weights of 1e30, which are finite, and a step that is reported as taken."""
    adapter.gradient.fill_(1.0)
    before = adapter.params.clone()
    with pytest.raises(InputError, match=message):
        adapter.step(AdamStep(**{"learning_rate": 0.1, **settings}))
    assert torch.equal(adapter.params, before)


@pytest.mark.parametrize(
    ("gradient", "settings"),
    [
        (1e25, {}),  # its square, the second moment
        (0.0, {"eps": 1e-46}),  # 0 in fp32: 0 / 0
        (1e10, {"eps": 1e-35, "beta2": 0.0, "beta1": 0.9}),  # where the next gradient is 0
    ],
)
def test_a_step_that_leaves_no_numbers_changes_nothing(
    adapter: Adapter, gradient: float, settings: dict[str, float]
) -> None:
    """Catches weights or moments that are not finite, and take the place of those that are."""
    adapter.gradient.fill_(gradient)
    adapter.gradient[0] = 1e-3
    if "beta2" in settings:
        adapter.step(AdamStep(learning_rate=0.1, **settings))
        adapter.gradient.fill_(0.0)
    before = [tensor.clone() for tensor in (adapter.params, adapter.adam_m, adapter.adam_v, adapter.gradient)]
    num_steps = adapter.num_steps
    with pytest.raises(
        InputError, match=r"would not be finite after a step with learning_rate=0\.1.*nothing was changed"
    ):
        adapter.step(AdamStep(learning_rate=0.1, **settings))
    after = (adapter.params, adapter.adam_m, adapter.adam_v, adapter.gradient)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert adapter.num_steps == num_steps
    adapter.clear_gradient()
    adapter.gradient.fill_(1.0)
    adapter.step(AdamStep(learning_rate=0.1))
    assert adapter.params.isfinite().all()


def test_a_step_is_the_same_where_it_was_tried_first(adapter: Adapter) -> None:
    """Catches a trial that leaves something behind: large gradients are tried on copies."""
    other = Adapter.create("base", adapter.layout, adapter.params.device)
    for each, scale in ((adapter, 2.0**-20), (other, 2.0**61)):
        each.gradient.copy_(noise(each.params, 1) * scale)
        each.step(AdamStep(learning_rate=0.1, eps=1e-30, grad_clip_norm=0.0))
    torch.testing.assert_close(adapter.params, other.params, rtol=1e-6, atol=1e-7)


def test_frozen_weights_do_not_follow_the_adapter(adapter: Adapter) -> None:
    frozen = adapter.frozen_weights(torch.float32)
    adapter.params.add_(1.0)
    assert not torch.equal(frozen.flat, adapter.params)
