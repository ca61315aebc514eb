"""No operation of a training pass is one that torch's deterministic algorithms refuse on a GPU.

Tensors are on the meta device, which a pass treats as it treats a GPU without kernels: nothing is computed, and the
operations of forward and backward are seen.
"""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.lora.lora import Segment, Weights
from cookhouse.engine.model import activations, base_model
from cookhouse.engine.model.attention import NAME, PackedLayout
from cookhouse.engine.model.base_model import BaseModel
from tests.engine.families import FAMILIES

META = torch.device("meta")
LENGTHS = [100, 28]
_UNLIKE = ("gemma2", "gpt_oss", "qwen3_next")
"""Families that together have each kind of layer; the others are of the slow tests."""
_REFUSED = frozenset({"put_", "histc", "kthvalue", "ctc_loss", "nll_loss_forward", "nll_loss2d_forward"})
_REFUSED_IF_FLOAT = frozenset({"cumsum", "cumsum_"})
# By `torch.use_deterministic_algorithms`, as far as a decoder could use them; `median` where it returns indices.


class _Refusals(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what a GPU would refuse."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if isinstance(args[0] if args else None, torch.Tensor):
            is_refused = name in _REFUSED or (name == "median" and "dim" in str(func))
            if is_refused or (name in _REFUSED_IF_FLOAT and args[0].is_floating_point()):
                self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _base(family: str) -> BaseModel:
    with META:
        model = AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=torch.bfloat16, attn_implementation=NAME)
    return BaseModel("m", model, None, META)


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=() if family in _UNLIKE else pytest.mark.slow) for family in sorted(FAMILIES)],
)
def test_no_operation_of_a_pass_is_refused(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a family of which each training pass fails on a GPU, and on a GPU alone."""
    monkeypatch.setattr(activations, "_storages", lambda _: {})
    monkeypatch.setattr(base_model, "can_group", lambda *_: True)  # the loop over experts reads numbers
    base = _base(family)
    layout = base.adapter_layout(LoraSpec(rank=4))
    flat, gradient = (torch.empty(layout.num_parameters, dtype=x, device=META) for x in (torch.bfloat16, torch.float32))
    segment = Segment(start=0, stop=sum(LENGTHS), weights=Weights(layout, flat), gradient=layout.views(gradient))
    numbers_N = torch.zeros(sum(LENGTHS), dtype=torch.int64, device=META)
    refusals = _Refusals()
    with refusals, base.routing.use(base.arrange([segment], sum(LENGTHS))):
        hidden_NH = base.hidden(numbers_N, numbers_N, PackedLayout(LENGTHS, META), base.routing.adapters)
        torch.autograd.backward(hidden_NH, torch.empty_like(hidden_NH))
    assert not refusals.seen
