"""Grouped products against one adapter at a time: what each row, each gradient and each slot gets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.lora import adapter_stack, grouped
from cookhouse.engine.lora.adapter_stack import AdapterStack, can_group, has_room, max_slots, stack_bytes
from cookhouse.engine.lora.expert_plan import GroupedPlan, Pairs, Projection
from cookhouse.engine.lora.grouped import Groups, Panels, arrange
from cookhouse.engine.lora.lora import (
    AdapterLayout,
    Adapters,
    LoraLinear,
    LoraSite,
    Routing,
    Segment,
    Segments,
    Weights,
)
from cookhouse.engine.model import base_model, head
from cookhouse.engine.model.attention import NAME, PackedLayout
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.head import Targets
from tests.engine.conftest import random_datums
from tests.engine.families import FAMILIES, save_family
from tests.engine.numerics import MODEL, assert_same

CPU = torch.device("cpu")
NUM_ROWS = 33
ALIGNED: dict[str, dict[str, Any]] = {"deepseek_v3": {"kv_lora_rank": 24}}
"""Changes by which the families have no size that a GPU's grouped products refuse."""
PLAIN = (
    LoraSite(name="x", part="mlp", in_features=24, out_features=40),
    LoraSite(name="y", part="attn", in_features=24, out_features=40),
)


def _segment(
    start: int, stop: int, rank: int, sites: tuple[LoraSite, ...], dtype: torch.dtype, device: str = "cpu"
) -> Segment:
    layout = AdapterLayout(sites, LoraSpec(rank=rank))
    flat = torch.randn(layout.num_parameters, generator=torch.Generator().manual_seed(start + 1))
    weights = Weights(layout, flat.to(device, dtype))
    gradient = layout.views(torch.zeros(layout.num_parameters, device=device))
    return Segment(start=start, stop=stop, weights=weights, gradient=gradient)


def _segments(dtype: torch.dtype, device: str = "cpu") -> list[Segment]:
    """Unequal ranks, one that lacks a site, and rows of no adapter between and after them."""
    spans = [(0, 5, 4, PLAIN), (7, 20, 33, PLAIN), (20, 21, 1, PLAIN[1:]), (25, 30, 8, PLAIN)]
    return [_segment(*span, dtype, device) for span in spans]


def _run(adapters: Adapters, name: str, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Output, gradient of the input and of each adapter, those of the adapters cleared again."""
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(NUM_ROWS, size, generator=generator).to(device, dtype) for size in (24, 40))
    y, dx = torch.zeros_like(dy), torch.zeros_like(x)
    product = adapters.at(name)
    assert product is not None
    product.backward(x, product.apply(x, y), dy, dx)
    found = [y, dx]
    for segment in adapters.segments:
        for matrix in (segment.gradient or {}).get(name, ()):
            found.append(matrix.clone())
            matrix.zero_()
    return found


def _assert_same(got: list[Tensor], want: list[Tensor], tolerance: float) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * float(other.abs().max()))


@pytest.mark.parametrize("name", ["x", "y"])
# Sums are added in another order; in bf16 the scaled B, and what is added to a row, are rounded once more as well.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, MODEL), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize(("most", "kind"), [(1023, Groups), (3, Panels)])
def test_groups_equal_one_segment_after_the_other(
    name: str, dtype: torch.dtype, tolerance: float, most: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch rows in a neighbor's slot, a gap that is adapted, padding in a gradient, and a scaling left out."""
    monkeypatch.setattr(adapter_stack, "_MAX_GROUPS", most)
    segments = _segments(dtype)
    groups = arrange(segments, NUM_ROWS, PLAIN, CPU)
    assert isinstance(groups, kind)
    _assert_same(_run(groups, name, dtype), _run(Segments(segments), name, dtype), tolerance)
    rows_C = torch.tensor([1, 2, 8, 19, 22, 29, 32])
    part = (torch.randn(len(rows_C), 24).to(dtype), torch.zeros(2, len(rows_C), 40, dtype=dtype))
    clipped: list[Adapters] = [groups.at_rows(rows_C), Segments(segments).at_rows(rows_C)]
    for adapters, y in zip(clipped, part[1], strict=True):
        product = adapters.at(name)
        assert product is not None
        product.apply(part[0], y)
    _assert_same([part[1][0]], [part[1][1]], tolerance)


def test_a_slot_without_rows_gets_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch what some GPUs leave in the product of an empty group (https://github.com/pytorch/pytorch/issues/172439)
    being added to a gradient.
    """

    def poisoned(a: Tensor, b: Tensor, *, offs: Tensor) -> Tensor:
        out = torch.nn.functional.grouped_mm(a, b, offs=offs)
        if out.dim() == 3:
            out[torch.diff(offs, prepend=offs.new_zeros(1)) == 0] = float("nan")
        return out

    monkeypatch.setattr(grouped, "grouped_mm", poisoned)
    groups = arrange(_segments(torch.float32), NUM_ROWS, PLAIN, CPU).at_rows(torch.arange(8, 20))
    product = groups.at("x")
    assert product is not None
    x, dy = torch.ones(12, 24), torch.ones(12, 40)
    product.backward(x, product.apply(x, torch.zeros_like(dy)), dy, None)
    is_changed = [any(m.ne(0).any() for m in (s.gradient or {}).get("x", ())) for s in groups.segments]
    assert is_changed == [False, True, False, False]
    assert all(m.isfinite().all() for s in groups.segments for pair in (s.gradient or {}).values() for m in pair)


def test_a_stack_is_filled_in_place() -> None:
    """Would catch a captured step that goes on with old addresses, with leftovers of a larger rank, or with what a slot
    was meant to hold no more; and a slot written though it holds what it should.
    """
    stack = AdapterStack(PLAIN, 16, 2, CPU, torch.float32)
    wide, narrow, partial = (
        _segment(i, 9, rank, sites, torch.float32).weights
        for i, (rank, sites) in enumerate([(16, PLAIN), (3, PLAIN), (5, PLAIN[:1])])
    )
    matrices = stack.matrices("y")
    assert matrices is not None
    a, b = matrices
    for held in ([wide, narrow], [narrow, wide], [partial, wide], [None, wide]):
        stack.fill(held)
        for slot, weights in enumerate(held):
            pair = None if weights is None else weights.views.get("y")
            merged = (
                torch.zeros(40, 24) if pair is None or weights is None else weights.layout.scaling * pair[1] @ pair[0]
            )
            assert_same(b[slot] @ a[slot], merged.double(), torch.float32)
    b[1].zero_()
    stack.fill([wide, wide])
    assert b[0].any()
    assert not b[1].any(), "a slot was written that held these weights"


def test_passes_that_gain_nothing_are_not_grouped() -> None:
    """Would catch a lone adapter losing its plain products, and more groups than a GPU takes."""
    experts = LoraSite(name="e", part="mlp", in_features=8, out_features=8, num_experts=256)
    assert max_slots([*PLAIN, experts]) == 3
    one, *_ = segments = _segments(torch.float32)
    assert isinstance(arrange([one], one.stop, PLAIN, CPU), Segments)
    assert isinstance(arrange([one], one.stop + 1, PLAIN, CPU), Groups)
    assert isinstance(arrange([], NUM_ROWS, PLAIN, CPU), Segments)
    many = replace(experts, num_experts=512)
    assert isinstance(arrange(segments, NUM_ROWS, [*PLAIN, many], CPU), Segments)
    assert not can_group(PLAIN, CPU, torch.bfloat16)


def test_a_high_rank_does_not_set_what_many_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch stacks without bound, panels that are counted one by one, and a lone adapter that loses its experts'
    grouped products to it.
    """
    experts = LoraSite(name="e", part="mlp", in_features=8, out_features=16, num_experts=4)
    for rank, num_slots, dtype in ((3, 2, torch.float32), (33, 5, torch.bfloat16)):
        stack = AdapterStack([*PLAIN, experts], rank, num_slots, CPU, dtype)
        pairs = [stack.matrices(name) or () for name in ("x", "y", "e")]
        assert stack_bytes([*PLAIN, experts], rank, num_slots, dtype) == sum(m.nbytes for pair in pairs for m in pair)
    monkeypatch.setattr(adapter_stack, "total_bytes", lambda _: 1600)
    assert [has_room(n, torch.device("cuda", 0)) for n in (100, 101)] == [True, False]
    assert has_room(2**40, CPU)
    segments = _segments(torch.float32)
    taken = stack_bytes(PLAIN, 33, 7, torch.float32)  # four segments with three gaps
    monkeypatch.setattr(grouped, "has_room", lambda num_bytes, _: num_bytes <= taken)
    assert isinstance(arrange(segments, NUM_ROWS, PLAIN, CPU), Groups)
    assert isinstance(arrange(segments, NUM_ROWS, [*PLAIN, experts], CPU), Groups)  # which no adapter covers
    monkeypatch.setattr(grouped, "has_room", lambda num_bytes, _: num_bytes < taken)
    assert isinstance(arrange(segments, NUM_ROWS, PLAIN, CPU), Segments)
    monkeypatch.setattr(adapter_stack, "_MAX_GROUPS", 3)
    largest = stack_bytes(PLAIN, 33, 3, torch.float32)
    monkeypatch.setattr(grouped, "has_room", lambda num_bytes, _: num_bytes <= largest)
    assert isinstance(arrange(segments, NUM_ROWS, PLAIN, CPU), Segments)
    monkeypatch.setattr(grouped, "has_room", lambda *_: False)
    assert isinstance(arrange(segments[:1], NUM_ROWS, PLAIN, CPU), Groups)


def test_a_pass_without_memory_for_a_stack_takes_its_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch samples that fail with the stack that a step without a graph makes for itself."""

    def make(*_: Any) -> AdapterStack:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(grouped, "AdapterStack", make)
    segments = _segments(torch.float32)
    assert arrange(segments, NUM_ROWS, PLAIN, CPU) == Segments(segments)


@pytest.fixture(scope="module", params=["qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_family(tmp_path_factory.mktemp(request.param), request.param, **ALIGNED.get(request.param, {}))


def _engine(folder: str, precision: str = "float32", *, is_grouped: bool, device: str = "cpu") -> TorchEngine:
    """Three models of unequal rank and parts; whether grouped products compute them is not left to the device.

    On a CPU they take fp32 as well, on a GPU bf16 alone.
    """
    engine = TorchEngine(base_models=[folder], device=device, precision=precision)
    engine._bases[folder].routing.is_grouped = is_grouped
    specs = {
        "a": LoraSpec(rank=4, seed=1),
        "b": LoraSpec(rank=7, seed=2, train_attn=False),
        "c": LoraSpec(rank=2, seed=3, train_mlp=False, train_unembed=False),
    }
    for model_id, spec in specs.items():
        engine.create_model(model_id, folder, spec)
        params = engine._model(model_id).params
        noise = torch.randn(params.shape, generator=torch.Generator().manual_seed(spec.seed))
        params.add_(noise.to(params.device), alpha=0.05)
    return engine


def _train(engine: TorchEngine, *model_ids: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Log-probabilities and gradient of each model's request, all requests together; gradients are cleared."""
    requests = [
        ForwardBackward(model_id=m, data_D=random_datums([9, 30, 3], ord(m)), loss_fn="cross_entropy")
        for m in model_ids
    ]
    found = {}
    for model_id, output in zip(model_ids, engine.forward_backward(requests), strict=True):
        assert isinstance(output, ForwardBackwardOutput)
        gradient = engine._model(model_id).gradient
        found[model_id] = torch.from_numpy(np.concatenate(output.logprobs_D)), gradient.clone()
        gradient.zero_()
    return found


def test_grouped_training_of_several_tenants_equals_one_at_a_time(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch experts, biases, interleaved features or chunks of logits that go through another's adapter."""
    expected: dict[str, tuple[Tensor, Tensor]] = {}
    plain, engine = (_engine(folder, is_grouped=is_grouped) for is_grouped in (False, True))
    for model_id in "abc":
        expected |= _train(plain, model_id)
        (alone,) = _train(engine, model_id).values()
        _assert_same(list(alone), list(expected[model_id]), 2e-5)
    monkeypatch.setattr(head, "_CPU_BYTES", 4 * 264 * 50)  # three chunks of the three requests' 126 positions
    for model_id, found in _train(engine, *"abc").items():
        _assert_same(list(found), list(expected[model_id]), 2e-5)


class _NoReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where the host reads a value, or asks for a size that depends on one."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.unique_consecutive)
        assert function.overloadpacket not in reads, function
        if function.overloadpacket is torch.ops.aten.index:
            assert not any(i is not None and i.dtype == torch.bool for i in args[1]), "a mask has a size of its own"
        return function(*args, **(kwargs or {}))


def test_a_pass_over_a_stack_reads_nothing_back(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch what cannot be captured, and rows that a stack in the form of the sampler's sends elsewhere."""
    engine = _engine(folder, is_grouped=True)
    base: BaseModel = engine._bases[folder]
    weights = [engine._model(m).weights(torch.float32) for m in "ab"]  # type: ignore[union-attr]
    spans = [(2, 5, weights[0]), (5, 9, weights[1])]
    segments = [Segment(start=a, stop=b, weights=w) for a, b, w in spans]
    tokens_N, positions_N, layout = torch.arange(10) + 40, torch.arange(10), PackedLayout([10], CPU)
    stack = AdapterStack(base.sites, 8, 5, CPU, torch.float32)
    stack.fill([None, *weights, None])
    groups = Groups(stack, torch.tensor([2, 5, 9, 10, 10], dtype=torch.int32))
    with torch.no_grad():
        base.routing.is_grouped = False
        expected = base.hidden(tokens_N, positions_N, layout, segments)
        logits = base.head.logits(expected, segments)
        base.routing.is_grouped = True
        monkeypatch.setattr(adapter_stack, "_MAX_GROUPS", 3 * max(site.num_experts or 1 for site in base.sites))
        panels = base.arrange(segments, 10)
        assert isinstance(panels, Panels)
        found: list[Tensor] = []
        for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__"):
            monkeypatch.setattr(Tensor, name, None)
        for adapters in (groups, panels):
            with _NoReads():  # type: ignore[no-untyped-call]
                found.append(base.hidden(tokens_N, positions_N, layout, adapters))
                found.append(base.head.logits(expected, adapters))
        monkeypatch.undo()
    _assert_same(found, [expected, logits, expected, logits], 1e-5)


@pytest.mark.parametrize("rank", [1, 4, 8, 32, 33])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_gpu_takes_the_layouts(rank: int, is_transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch strides that grouped products refuse on a GPU: for tensors without memory torch asks for the same.

    Gate and up lie side by side or take turns; sizes are aligned, and not more than that.
    """
    monkeypatch.setattr(torch.version, "cuda", "13.0")  # has results laid out as a GPU's
    meta, dtype = torch.device("meta"), torch.bfloat16
    halves = [slice(0, None, 2), slice(1, None, 2)] if is_transposed else [slice(0, 40), slice(40, 80)]
    gates = [replace(PLAIN[0], name=f"g{i}", num_experts=4, rows=half) for i, half in enumerate(halves)]
    sites = (PLAIN[0], *gates)
    stack = AdapterStack(sites, rank, 3, meta, dtype)
    layout = AdapterLayout(sites, LoraSpec(rank=rank))
    gradient = layout.views(torch.empty(layout.num_parameters, device=meta))
    weights = Weights(layout, torch.empty(layout.num_parameters, device=meta, dtype=dtype))
    stack.fill([weights, weights, weights])
    segments = [Segment(start=9 * i, stop=9 * i + 9, weights=weights, gradient=gradient) for i in range(3)]
    groups = Groups(stack, torch.empty(3, dtype=torch.int32, device=meta), segments)
    x_NI = torch.empty(27, 24, device=meta, dtype=dtype, requires_grad=True)
    linear = nn.Linear(24, 40, device=meta, dtype=dtype).requires_grad_(False)
    routing = Routing()
    with routing.use(groups):
        LoraLinear(linear, sites[0], routing)(x_NI).sum().backward()
    pairs = Pairs.of(torch.empty(27, 2, dtype=torch.int64, device=meta), 4)
    weight = torch.empty((4, 24, 80) if is_transposed else (4, 80, 24), device=meta, dtype=dtype)
    bias_EO = torch.empty(4, 80, device=meta, dtype=dtype)
    projection = Projection(weight.mT if is_transposed else weight, bias_EO, gates)
    y_SO = GroupedPlan.of(pairs, [groups]).product(pairs.spread(x_NI), projection)
    y_SO.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("num_recomputed", [0, 2])
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_a_training_pass_takes_them_and_reads_once(
    family: str, num_recomputed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch what a layer hands to a product otherwise than above, a tensor left on the host, and any host read
    but that of which gradients are zero: what has no memory cannot be read.
    """
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    # Rotary embeddings of some versions of transformers ask it of this device, which it does not know.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(base_model, "can_group", lambda *_: True)
    meta, config = torch.device("meta"), FAMILIES[family]()
    for name, value in ALIGNED.get(family, {}).items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=NAME)
    base = BaseModel(family, model.to(meta), None, meta)
    monkeypatch.setattr(base.activations, "plan", lambda *_: num_recomputed)
    segments = []
    for start, rank in ((0, 4), (10, 31), (20, 8)):
        layout = base.adapter_layout(LoraSpec(rank=rank))
        weights = Weights(layout, torch.empty(layout.num_parameters, device=meta, dtype=torch.bfloat16))
        gradient = layout.views(torch.empty(layout.num_parameters, device=meta))
        segments.append(Segment(start=start, stop=start + 10, weights=weights, gradient=gradient))
    adapters = base.arrange(segments, 30)
    assert isinstance(adapters, Groups)
    zeros_N = torch.zeros(30, dtype=torch.int64, device=meta)
    hidden_NH = base.hidden(zeros_N, zeros_N, PackedLayout([10, 10, 10], meta), adapters)
    targets = Targets(torch.arange(30), zeros_N)
    base.head.logprobs(hidden_NH.detach(), targets, adapters)
    reads: list[Tensor] = []

    def read(is_used_M: Tensor) -> Tensor:
        reads.append(is_used_M)
        return torch.arange(30) % 3 == 0

    monkeypatch.setattr(Tensor, "cpu", read)
    dhidden_NH = base.head.backward(hidden_NH.detach(), targets, torch.empty(30, device=meta), adapters)
    with base.routing.use(adapters):
        torch.autograd.backward(hidden_NH, dhidden_NH)
    assert len(reads) == 1


def test_a_gpu_refuses_what_is_not_aligned() -> None:
    """Would catch rules of torch that have changed, under which the sizes that are kept out could be let in."""
    a, b = (torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in ((9, 20), (2, 8, 20)))
    with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
        nn.functional.grouped_mm(a, b.mT, offs=torch.empty(2, dtype=torch.int32, device="meta"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["x", "y"])
def test_groups_equal_segments_on_a_gpu(name: str) -> None:
    """Would catch a GPU's grouped products that differ from those of the CPU, on which the other tests run."""
    segments = _segments(torch.bfloat16, "cuda")
    groups = arrange(segments, NUM_ROWS, PLAIN, torch.device("cuda"))
    _assert_same(
        _run(groups, name, torch.bfloat16, "cuda"), _run(Segments(segments), name, torch.bfloat16, "cuda"), 1e-2
    )


@pytest.mark.gpu
def test_grouped_training_on_a_gpu_equals_the_loop(folder: str) -> None:
    """Would catch a pass that a GPU computes otherwise when it is grouped, or not twice the same."""
    plain, engine = (_engine(folder, "bfloat16", is_grouped=is_grouped, device="cuda") for is_grouped in (False, True))
    first, again, expected = _train(engine, *"abc"), _train(engine, *"abc"), _train(plain, *"abc")
    for model_id, (logprobs, gradient) in first.items():
        assert torch.equal(gradient, again[model_id][1])
        assert float((logprobs - expected[model_id][0]).abs().mean()) < 0.1
        assert torch.cosine_similarity(gradient, expected[model_id][1], 0) > 0.95


@pytest.mark.gpu
def test_a_captured_product_sees_what_a_stack_is_filled_with() -> None:
    """Would catch a host read within a captured step, or one that computes with the adapters of its capture."""
    cuda = torch.device("cuda")
    segments = _segments(torch.bfloat16, "cuda")[:1]
    stack = AdapterStack(PLAIN, 8, 2, cuda, torch.bfloat16)
    groups = Groups(stack, torch.tensor([NUM_ROWS, NUM_ROWS], dtype=torch.int32, device=cuda))
    x = torch.randn(NUM_ROWS, 24, device=cuda, dtype=torch.bfloat16)
    y = torch.zeros(NUM_ROWS, 40, device=cuda, dtype=torch.bfloat16)
    product = groups.at("x")
    assert product is not None
    product.apply(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.zero_()
        product.apply(x, y)
    stack.fill([segments[0].weights])
    graph.replay()
    expected = torch.zeros_like(y)
    product.apply(x, expected)
    assert expected.any()
    assert torch.equal(y, expected)
