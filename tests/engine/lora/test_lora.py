"""Catches adapters that overlap in memory, change the base model at birth, or depend on anything but their seed."""

import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, LoraSpec
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums


@pytest.fixture(scope="module")
def base(qwen3_folder: str) -> BaseModel:
    return BaseModel.load(qwen3_folder, torch.device("cpu"), torch.float32)


def test_views_tile_the_flat_tensor(base: BaseModel) -> None:
    layout = base.adapter_layout(LoraSpec(rank=3))
    flat = torch.zeros(layout.num_parameters)
    for a_RI, b_OR in layout.views(flat).values():
        a_RI.add_(1)
        b_OR.add_(1)
    assert flat.eq(1).all()
    # rank · Σ (in + out): 2 layers of q, k, v, o, gate, up, down; and the output projection
    per_layer = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 96)
    assert layout.num_parameters == 3 * (2 * per_layer + 64 + 264)


@pytest.mark.parametrize(
    ("spec", "num_sites"),
    [
        (LoraSpec(), 15),
        (LoraSpec(train_unembed=False), 14),
        (LoraSpec(train_mlp=False, train_unembed=False), 8),
        (LoraSpec(train_attn=False), 7),
    ],
)
def test_parts_choose_sites(base: BaseModel, spec: LoraSpec, num_sites: int) -> None:
    assert len(base.adapter_layout(spec).sites) == num_sites


def test_equal_seeds_give_equal_adapters_and_the_first_a_is_not_zero(base: BaseModel) -> None:
    layout = base.adapter_layout(LoraSpec(seed=5))
    first, second = layout.initial(torch.device("cpu")), layout.initial(torch.device("cpu"))
    other = base.adapter_layout(LoraSpec(seed=6)).initial(torch.device("cpu"))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_new_adapter_changes_nothing(engine: TorchEngine, qwen3_folder: str) -> None:
    datums = random_datums([9, 20])
    engine.create_model("ranked", qwen3_folder, LoraSpec(rank=8, seed=1))
    engine.create_model("other", qwen3_folder, LoraSpec(rank=2, seed=2))
    one, two = (
        engine.forward_backward([ForwardBackward(model_id=m, data_D=datums, loss_fn="cross_entropy")])[0]
        for m in ("ranked", "other")
    )
    assert not isinstance(one, Exception)
    assert not isinstance(two, Exception)
    assert one.metrics["loss:sum"] == two.metrics["loss:sum"]


@pytest.mark.parametrize(
    "spec", [LoraSpec(rank=-1), LoraSpec(rank=65), LoraSpec(train_attn=False, train_mlp=False, train_unembed=False)]
)
def test_impossible_adapters_are_refused(base: BaseModel, spec: LoraSpec) -> None:
    with pytest.raises(InputError, match=r"rank is|at least one must be true"):
        base.adapter_layout(spec)
