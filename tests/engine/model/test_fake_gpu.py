"""A forward of every architecture over tensors that claim to be on a GPU and hold nothing, so that none is needed.

Catches a tensor of the host among those of the device, sizes that a GPU's operations refuse, and a value that the host
reads back. What is computed is tested elsewhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, AutoTokenizer

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.engine import switches
from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.kernels import choice, products
from cookhouse.engine.lora import adapter_stack, lora
from cookhouse.engine.lora.lora import Segment, Segments, Weights
from cookhouse.engine.model import activations
from cookhouse.engine.model.attention import NAME, PackedLayout, varlen
from cookhouse.engine.model.base_model import BaseModel
from tests.engine.families import FAMILIES

GPU = torch.device("cuda", 0)
NUM_TOKENS = 128
_aten = torch.ops.aten


def _select(x: Tensor, key: Any) -> tuple[Tensor, list[Tensor | None]]:
    """A view by what a key has of integers, slices, None and dots, and its tensors by dimension of the view."""
    keys: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    num_taken = sum(one is not None and one is not Ellipsis for one in keys)
    view, dim, indices = x, 0, list[Tensor | None]()
    for one in keys:
        if one is Ellipsis:
            dim += x.dim() - num_taken
        elif isinstance(one, int):
            view = _aten.select.int(view, dim, one)
            continue
        elif one is None:
            view = _aten.unsqueeze(view, dim)
        elif isinstance(one, slice):
            view = _aten.slice.Tensor(view, dim, one.start, one.stop, one.step or 1)
        dim += one is not Ellipsis
        indices += [None] * (dim - len(indices))
        if isinstance(one, Tensor):
            indices[-1] = one
    return view, indices


def _get_item(x: Tensor, key: Any) -> Tensor:
    view, indices = _select(x, key)
    found: Tensor = _aten.index.Tensor(view, indices) if any(one is not None for one in indices) else view
    return found


def _set_item(x: Tensor, key: Any, value: Tensor) -> None:
    view, indices = _select(x, key)
    if any(one is not None for one in indices):
        _aten.index_put_(view, indices, value)
    else:
        view.copy_(value)


@pytest.fixture
def fake_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything behaves as on a GPU of compute capability 9.0, except that nothing is computed."""
    if device != "cpu":
        pytest.skip("there is a real one")
    pytest.importorskip("triton")
    from cookhouse.engine.kernels.gpu import elementwise
    from cookhouse.engine.kernels.gpu.functions import GpuKernels

    monkeypatch.setattr(elementwise, "launch", lambda *_, **__: None)
    monkeypatch.setattr(choice, "_gpu_kernels", lambda _: GpuKernels())
    monkeypatch.setattr(varlen, "_is_built_for", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(adapter_stack, "total_bytes", lambda _: 2**36)
    monkeypatch.setattr(activations, "_storages", lambda _: {})  # by address, which nothing has
    monkeypatch.setattr(Tensor, "pin_memory", lambda x: x)
    monkeypatch.setattr(Tensor, "__getitem__", _get_item)  # torch's own ask the driver for the device
    monkeypatch.setattr(Tensor, "__setitem__", _set_item)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)


@contextmanager
def _base_and_segments(family: str, dtype: torch.dtype) -> Iterator[tuple[BaseModel, list[Segment]]]:
    """A model, and adapters of unequal rank for two sequences, for as long as new tensors hold nothing."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(TINY_MODEL))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=dtype, attn_implementation=NAME)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        base = BaseModel("m", model.to_empty(device=GPU), tokenizer, GPU)
        segments = []
        for start, stop, rank in ((0, 100, 8), (100, NUM_TOKENS, 32)):
            layout = base.adapter_layout(LoraSpec(rank=rank))
            weights = Weights(layout, torch.empty(layout.num_parameters, dtype=dtype, device=GPU))
            gradient = layout.views(torch.empty(layout.num_parameters, device=GPU))
            segments.append(Segment(start=start, stop=stop, weights=weights, gradient=gradient))
        yield base, segments


def _forward(family: str, dtype: torch.dtype) -> Tensor:
    """Final hidden states of two sequences that go through adapters."""
    with _base_and_segments(family, dtype) as (base, segments):
        numbers_N = torch.zeros(NUM_TOKENS, dtype=torch.int64, device=GPU)
        lengths = [100, NUM_TOKENS - 100]
        return base.hidden(numbers_N, numbers_N, PackedLayout(lengths, GPU), base.arrange(segments, NUM_TOKENS))


# In the attention of DeepSeek-V3 and the rotary embedding of Qwen3.5, both of transformers, something else asks for the
# driver.
@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"deepseek_v3", "qwen3_5_moe_text"}))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_forward_stays_on_the_device(family: str, dtype: torch.dtype) -> None:
    if dtype == torch.float32 and family in ("qwen3_moe", "gpt_oss", "granitemoe", "qwen3_next"):
        pytest.skip("the host reads the bounds of a loop over experts")
    hidden_NH = _forward(family, dtype)
    assert (hidden_NH.shape[0], hidden_NH.device, hidden_NH.dtype) == (NUM_TOKENS, GPU, dtype)


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("is_wide", [False, True])
def test_logits_and_gradients_of_adapters_are_fp32_where_asked(is_wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a product of bf16 that is added to fp32 as no GPU does, and one that is rounded all the same."""
    monkeypatch.setattr(switches, "_chosen", lambda: frozenset({"wide_products"}) if is_wide else frozenset())
    wide = torch.float32 if is_wide else torch.bfloat16
    with _base_and_segments("qwen3", torch.bfloat16) as (base, segments):
        hidden_NH = torch.empty(NUM_TOKENS, base.config.hidden_size, dtype=torch.bfloat16, device=GPU)
        for adapters in (segments[:1], segments, base.arrange(segments, NUM_TOKENS)):
            assert base.head.logits(hidden_NH, adapters).dtype == base.head.logits_dtype == wide
        found: list[torch.dtype] = []

        def multiply(left: Tensor, right: Tensor) -> Tensor:
            product = products.wide_matmul(left, right)
            found.append(product.dtype)
            return product

        monkeypatch.setattr(lora, "wide_matmul", multiply)
        product = Segments(segments).at(base.head.name)
        assert product is not None
        logits_NV = torch.empty(NUM_TOKENS, base.head.vocab_size, dtype=torch.bfloat16, device=GPU)
        lows = product.apply(hidden_NH, logits_NV)
        product.backward(hidden_NH, lows, logits_NV, hidden_NH)
    assert found == [wide] * 4


@pytest.mark.usefixtures("fake_gpu")
def test_a_tensor_of_the_host_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail."""
    upload = torch.zeros(NUM_TOKENS, 32, dtype=torch.bfloat16)
    decode = BaseModel._decode
    monkeypatch.setattr(BaseModel, "_decode", lambda *arguments: decode(*arguments) + upload[: len(arguments[1])])
    with pytest.raises(RuntimeError, match="devices"):
        _forward("llama", torch.bfloat16)
