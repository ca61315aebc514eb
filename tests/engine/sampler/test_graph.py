"""Captured decoding steps equal passes that are not captured, whatever joins, leaves or is published meanwhile.

A recorder takes the place of CUDA graphs.
"""

import gc
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec, SampleOutput, SampleRequest
from cookhouse.engine.lora.adapter_stack import AdapterStack, stack_bytes
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler import Sampler, step_inputs
from cookhouse.engine.sampler.graph import CudaCapture, NothingReadBack, Step, _DecodingStep, padded_blocks, padded_rows
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.families import FAMILIES, save_family
from tests.engine.numerics import MODEL, assert_logprobs_near
from tests.engine.sampler.recorder import Recorder, attend_plainly
from tests.engine.stepping import advance

paged = pytest.importorskip("cookhouse.engine.kernels.gpu.paged_attention", reason="needs Triton")
_CACHE_BYTES = 2**20


@pytest.fixture
def plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paged kernel has tests of its own, and its interpreter is slow."""
    monkeypatch.setattr(paged, "paged_attention", attend_plainly)


class _Bench:
    """One model with adapters of several ranks, and samplers over it that capture their steps or do not."""

    def __init__(self, folder: str, device: str = "cpu", precision: str = "float32") -> None:
        self.folder = folder
        self.engine = TorchEngine(base_models=[folder], device=device, precision=precision)
        self.base = self.engine._bases[folder]
        for index, rank in enumerate((4, 8, 3)):
            self.publish(f"s{index}", rank, seed=index)

    def publish(self, snapshot_id: str, rank: int, seed: int) -> None:
        spec = LoraSpec(rank=rank, seed=seed, train_mlp=seed % 2 == 0)
        layout = self.base.adapter_layout(spec)
        flat = torch.randn(layout.num_parameters, generator=torch.Generator().manual_seed(seed)) * 0.1
        flat = flat.to(self.engine._device, self.engine._dtype)
        self.engine._snapshots[snapshot_id] = self.folder, Weights(layout, flat)

    def use(self, recorder: Any, cache_bytes: int = _CACHE_BYTES, **options: Any) -> Sampler:
        """Sample through a captured step (None: through torch)."""
        self.base.routing.is_grouped = recorder is not None
        sampler = Sampler(self.base, cache_bytes, is_native=False, capture=recorder, **options)
        self.engine._samplers[self.folder] = sampler
        return sampler

    def ask(self, request_id: str, snapshot_id: str | None, **changes: Any) -> SampleRequest:
        rng = np.random.default_rng(sum(request_id.encode()))
        fields: dict[str, Any] = {"prompt_T": rng.integers(0, 256, 20), "stop": [], "max_tokens": 8, "seed": 3}
        return SampleRequest(
            request_id=request_id, base_model=self.folder, snapshot_id=snapshot_id, **(fields | changes)
        )

    def sample(self, *waves: Sequence[SampleRequest]) -> dict[str, SampleOutput]:
        """Submit one wave a step."""
        outputs: dict[str, SampleOutput] = {}
        pending = list(waves)
        while pending or self.engine.has_samples():
            for request in pending.pop(0) if pending else ():
                self.engine.submit_sample(request)
            outputs |= {output.request_id: output for output in advance(self.engine)}
        return outputs


@pytest.fixture(autouse=True)
def capture_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.engine.sampler.graph._USES_BEFORE_CAPTURE", 0)


@pytest.fixture
def bench(qwen3_folder: str) -> _Bench:
    return _Bench(qwen3_folder)


def _assert_same(outputs: dict[str, SampleOutput], expected: dict[str, SampleOutput]) -> None:
    assert outputs.keys() == expected.keys()
    for name, output in outputs.items():
        for one, other in zip(output.sequences, expected[name].sequences, strict=True):
            assert one.tokens_T.tolist() == other.tokens_T.tolist()
            assert_logprobs_near(one.logprobs_T, other.logprobs_T)
        scores, others = output.prompt_logprobs_T, expected[name].prompt_logprobs_T
        assert (scores is None) == (others is None)
        if scores is not None and others is not None:
            assert_logprobs_near(scores[1:], others[1:])


def _waves(bench: _Bench) -> list[list[SampleRequest]]:
    """Requests that join at different steps and leave at others: adapters, the bare base, forks, greedy, scored."""
    return [
        [bench.ask("a", "s0", temperature=0.0), bench.ask("b", None, max_tokens=5)],
        [bench.ask("c", "s1", num_samples=3, prompt_logprobs=True), bench.ask("d", "s0", max_tokens=3, top_k=5)],
        [],
        [bench.ask("e", "s2", top_p=0.9), bench.ask("f", None, num_samples=2, prompt_logprobs=True)],
        [bench.ask("g", "s1", prompt_T=np.arange(3), max_tokens=20)],
    ]


@pytest.mark.usefixtures("plain_attention")
def test_captured_steps_sample_what_torch_samples(bench: _Bench) -> None:
    """Would catch rows through the wrong adapter or the wrong table, padding that is seen, and a stale input."""
    waves = _waves(bench)
    bench.use(None)
    expected = bench.sample(*waves)
    recorder = Recorder()
    bench.use(recorder)
    _assert_same(bench.sample(*waves), expected)
    assert recorder.num_replays > 15
    assert recorder.num_captures < 8


@pytest.mark.usefixtures("plain_attention")
def test_only_shapes_that_come_up_again_are_captured(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a capture for every size that a batch shrinks through, and steps left out until then."""
    monkeypatch.setattr("cookhouse.engine.sampler.graph._USES_BEFORE_CAPTURE", 4)
    wave = [bench.ask("a", "s0", max_tokens=12), bench.ask("b", None, max_tokens=4)]
    bench.use(None)
    expected = bench.sample(wave)
    recorder = Recorder()
    bench.use(recorder)
    _assert_same(bench.sample(wave), expected)
    # Of two rows there are 3 steps, of one row 8.
    assert (recorder.num_captures, recorder.num_replays) == (1, 4)


# Recurrent layers are not captured.
@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"qwen3_5_moe_text", "qwen3_next"}))
def test_steps_of_every_family_can_be_captured(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a layer that reads back to the host, so that its models decode slowly on a GPU."""
    bench = _Bench(save_family(tmp_path, family))
    waves = [[bench.ask("a", "s0"), bench.ask("b", None)], [bench.ask("c", "s2", prompt_logprobs=True)]]
    bench.use(None)
    expected = bench.sample(*waves)
    recorder = Recorder()
    bench.use(recorder)
    _assert_same(bench.sample(*waves), expected)
    assert not [record for record in caplog.records if "CUDA graphs" in record.getMessage()]
    assert recorder.num_replays == 8


def test_captured_steps_over_the_paged_kernel_sample_what_torch_samples(bench: _Bench, device: str) -> None:
    """Would catch a layout of padded rows that the kernel itself does not bear."""
    if device != "cpu":
        pytest.skip("Triton compiles for the GPU and interprets nothing")
    wave = [bench.ask("a", "s0", max_tokens=3), bench.ask("b", None, max_tokens=3), bench.ask("c", "s1", max_tokens=3)]
    bench.use(None)
    expected = bench.sample(wave)
    bench.use(Recorder())
    _assert_same(bench.sample(wave), expected)


@pytest.mark.usefixtures("plain_attention")
def test_steps_are_captured_anew_over_a_cache_that_has_grown(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a graph over memory that was given back, and padding that writes to a block of a sequence."""
    monkeypatch.setattr("cookhouse.engine.sampler.sampler._FIRST_BYTES", 1)
    waves = _waves(bench)
    bench.use(None)
    expected = bench.sample(*waves)
    recorder = Recorder()
    sampler = bench.use(recorder, limit=lambda _: _CACHE_BYTES, is_copied=True)
    caches = {id(sampler._runner._cache.keys[0])}
    _assert_same(bench.sample(*waves), expected)
    caches.add(id(sampler._runner._cache.keys[0]))
    assert len(caches) == 2
    assert sampler._runner.num_blocks == sampler._scheduler.blocks.num_blocks < _CACHE_BYTES // sampler._block_bytes
    assert recorder.num_replays > 15


@pytest.mark.usefixtures("plain_attention")
def test_preemption_and_cancellation_under_captured_steps(bench: _Bench) -> None:
    """Would catch a table that still names blocks which went to another sequence."""
    requests = [bench.ask(f"r{i}", [None, "s0", "s1"][i % 3], num_samples=2, max_tokens=30) for i in range(5)]
    bench.use(None)
    expected = bench.sample(requests)
    num_bytes = 12 * 16 * bench.base.cache_shape.num_features * 4
    sampler = bench.use(Recorder(), cache_bytes=num_bytes)
    bench.engine.submit_sample(bench.ask("dropped", "s2", max_tokens=100))
    for _ in range(3):
        bench.engine.step_samples()
    bench.engine.cancel_sample("dropped")
    _assert_same(bench.sample(requests), expected)
    assert sampler.num_free_blocks == 12


@pytest.mark.usefixtures("plain_attention")
def test_published_weights_are_seen_and_a_thousand_snapshots_leave_nothing_behind(bench: _Bench) -> None:
    """Would catch a slot that keeps the weights of an earlier snapshot, and slots or graphs that pile up."""
    recorder = Recorder()
    runner = bench.use(recorder)._runner
    assert runner._graphs is not None
    published: list[weakref.ref[Weights]] = []
    seen = set()
    for version in range(1000):
        bench.publish("s0", rank=4, seed=version)
        published.append(weakref.ref(bench.engine._snapshot("s0")[1]))
        if version % 100 == 0:
            (sequence,) = bench.sample([bench.ask("r", "s0", max_tokens=3)])["r"].sequences
        else:
            weights = published[-1]()
            assert weights is not None
            runner._graphs._seat(runner._graphs._alone, [weights])
        seen.add(tuple(sequence.logprobs_T))
    bench.use(None)
    (expected,) = bench.sample([bench.ask("r", "s0", max_tokens=3)])["r"].sequences
    assert len(seen) == 10
    assert recorder.num_captures == 1
    assert sum(weights() is not None for weights in published) <= 1
    groups = runner._graphs._alone.groups
    assert groups is not None
    assert groups.stack.num_slots == 1
    assert len(expected.tokens_T) == 3


@pytest.mark.usefixtures("plain_attention")
def test_more_adapters_or_a_higher_rank_make_a_larger_stack(bench: _Bench) -> None:
    """Would catch graphs that still point into the stack that was replaced."""
    for index in range(6):
        bench.publish(f"t{index}", rank=16 if index == 5 else 2, seed=index + 10)
    waves = [[bench.ask("a", "s0", max_tokens=12)]]
    waves += [[bench.ask(f"r{index}", f"t{index}", max_tokens=6)] for index in range(6)]
    bench.use(None)
    expected = bench.sample(*waves)
    sampler = bench.use(Recorder())
    _assert_same(bench.sample(*waves), expected)
    graphs = sampler._runner._graphs
    assert graphs is not None
    assert graphs._shared.groups is not None
    assert (graphs._shared.groups.stack.num_slots, graphs._shared.groups.stack.rank) == (9, 16)


@pytest.mark.usefixtures("plain_attention")
def test_adapters_that_cannot_share_products_decode_uncaptured(bench: _Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch adapters left out where grouped products are not to be had, as in fp32 on a GPU, or slow in silence;
    and that an adapter alone, which needs none, or the bare base model is slow as well.
    """
    waves = [[bench.ask("a", "s0"), bench.ask("b", None, max_tokens=4)], [bench.ask("c", "s1", max_tokens=20)]]
    bench.use(None)
    expected = bench.sample(*waves) | bench.sample([bench.ask("d", None)])
    recorder = Recorder()
    bench.use(recorder)
    bench.base.routing.is_grouped = False
    _assert_same(bench.sample(*waves) | bench.sample([bench.ask("d", None)]), expected)
    # While c is alone, and d.
    assert recorder.num_replays == 13 + 7
    (record,) = caplog.records
    assert "some steps run without CUDA graphs, which is slower: in torch.float32" in record.getMessage()


@pytest.mark.usefixtures("plain_attention")
def test_rows_that_all_have_one_adapter_take_ordinary_products(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a lone tenant that pays for grouped products, and one that gets another's weights in turn."""
    waves = [[bench.ask("a", "s0", num_samples=3)], *([] for _ in range(8)), [bench.ask("b", "s1")]]
    bench.use(None)
    expected = bench.sample(*waves)
    recorder = Recorder()
    bench.use(recorder)
    monkeypatch.setattr("cookhouse.engine.lora.grouped.grouped_mm", None)
    _assert_same(bench.sample(*waves), expected)
    assert recorder.num_replays == 14


def test_a_capture_refuses_what_cuda_would_break_off() -> None:
    """Would catch a step that spoils the capture, after which torch's allocator gives back no memory."""
    x = torch.arange(3.0)
    steps: list[Any] = [
        lambda: x.max().item(),
        lambda: x[x > 1],
        lambda: torch.nonzero(x),
        lambda: x.to("meta"),
    ]
    for step in steps:
        with pytest.raises(RuntimeError, match=r"reads|allocates|copies"), NothingReadBack():  # type: ignore[no-untyped-call]
            step()


@pytest.mark.usefixtures("plain_attention")
def test_a_step_that_reads_back_decodes_uncaptured_with_one_warning(
    bench: _Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a model that fails, that tries again each step, or that is slow and does not say why."""
    waves = _waves(bench)
    bench.use(None)
    expected = bench.sample(*waves)
    hidden = BaseModel.hidden

    def reads_back(self: BaseModel, tokens_N: Tensor, *more: Any) -> Tensor:
        assert int(tokens_N.max()) < VOCAB_SIZE
        return hidden(self, tokens_N, *more)

    monkeypatch.setattr(BaseModel, "hidden", reads_back)
    recorder = Recorder()
    bench.use(recorder)
    with caplog.at_level(logging.WARNING):
        _assert_same(bench.sample(*waves), expected)
    (record,) = caplog.records
    assert "_local_scalar_dense reads back to the host" in record.getMessage()
    assert recorder.num_replays == 0


@pytest.mark.usefixtures("plain_attention")
def test_steps_are_captured_again_when_there_is_memory_again(bench: _Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch samples that fail with a capture, and a sampler that stays slow after a short time of need."""
    waves = _waves(bench)
    bench.use(None)
    expected = bench.sample(*waves)
    recorder = Recorder()
    shortages = iter(range(3))

    def capture(step: Step) -> Step:
        if next(shortages, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return recorder(step)

    bench.use(capture)
    _assert_same(bench.sample(*waves), expected)
    assert recorder.num_replays > 10
    (record,) = caplog.records
    assert record.getMessage().endswith("which is slower: memory ran out")


@pytest.mark.usefixtures("plain_attention")
def test_memory_that_runs_out_before_a_capture_fails_no_sample(
    bench: _Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch the first uses of a shape, which are not captured, that take the step of all requests with them."""
    monkeypatch.setattr("cookhouse.engine.sampler.graph._USES_BEFORE_CAPTURE", 4)
    wave = [bench.ask("a", "s0", max_tokens=12), bench.ask("b", None, max_tokens=12)]
    bench.use(None)
    expected = bench.sample(wave)
    shortages, compute = iter(range(2)), _DecodingStep.__call__

    def call(self: _DecodingStep) -> None:
        if next(shortages, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        compute(self)

    monkeypatch.setattr(_DecodingStep, "__call__", call)
    recorder = Recorder()
    bench.use(recorder)
    _assert_same(bench.sample(wave), expected)
    assert recorder.num_replays == 11 - 2 - 4
    (record,) = caplog.records
    assert record.getMessage().endswith("which is slower: memory ran out")


@pytest.mark.usefixtures("plain_attention")
def test_adapters_without_memory_are_not_tried_each_step(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a mix that fails and drops all graphs step by step, one that no smaller mix follows, and one that is
    never tried again.
    """
    wave = [bench.ask("a", "s0", max_tokens=12), bench.ask("b", "s1", max_tokens=12)]
    wave.append(bench.ask("c", "s2", max_tokens=6))
    bench.use(None)
    expected = bench.sample(wave)
    tried: list[int] = []

    def make(sites: Any, rank: int, num_slots: int, *more: Any) -> AdapterStack:
        tried.append(num_slots)
        if num_slots > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return AdapterStack(sites, rank, num_slots, *more)

    monkeypatch.setattr(step_inputs, "AdapterStack", make)
    recorder = Recorder()
    bench.use(recorder)
    _assert_same(bench.sample(wave), expected)
    assert tried == [5, 3]  # slots for four, then for two, each with one of zeros
    assert (recorder.num_captures, recorder.num_replays) == (1, 6)
    monkeypatch.setattr(step_inputs, "_REFUSED_SECONDS", 0.0)
    tried.clear()
    bench.use(recorder)
    _assert_same(bench.sample(wave), expected)
    assert tried == [5] * 5 + [3]


@pytest.mark.usefixtures("plain_attention")
def test_a_stack_is_bounded(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one tenant of high rank by whom all slots are wide, and one of an earlier mix by whom a larger mix is
    too wide.
    """
    bench.publish("wide", rank=64, seed=7)
    waves = [
        [bench.ask("a", "wide", max_tokens=4), bench.ask("b", "s0", max_tokens=4)],
        *([] for _ in range(5)),
        [bench.ask(f"r{i}", f"s{i}", max_tokens=6) for i in range(3)],
        *([] for _ in range(3)),
        [bench.ask("d", "wide", max_tokens=2)],
    ]
    bench.use(None)
    expected = bench.sample(*waves)
    most = stack_bytes(bench.base.sites, 64, 3, bench.base.dtype)
    monkeypatch.setattr(step_inputs, "has_room", lambda num_bytes, _: num_bytes <= most)
    recorder = Recorder()
    graphs = bench.use(recorder)._runner._graphs
    assert graphs is not None
    _assert_same(bench.sample(*waves), expected)
    assert graphs._shared.groups is not None
    assert (graphs._shared.groups.stack.num_slots, graphs._shared.groups.stack.rank) == (5, 8)
    assert (recorder.num_captures, recorder.num_replays) == (2, 3 + 4)


@pytest.mark.usefixtures("plain_attention")
def test_a_snapshot_of_all_weights_has_graphs_of_its_own(bench: _Bench) -> None:
    """Would catch a step that still runs the base model, or that looks for adapters where there are none."""
    engine, recorder = bench.engine, Recorder()
    engine.create_model("full", bench.folder, LoraSpec(rank=0))
    model = engine._model("full")
    model.params.mul_(1.5)
    engine.snapshot("full", "all")
    wave = [bench.ask("a", "all", max_tokens=5), bench.ask("b", "all", temperature=0.0)]
    base = engine._full_snapshots["all"].base
    outputs = []
    for capture in (None, recorder):
        engine._full_samplers["all"] = Sampler(base, _CACHE_BYTES, is_native=False, capture=capture)
        outputs.append(bench.sample(wave))
    _assert_same(*outputs)
    assert recorder.num_replays == 7


@pytest.mark.usefixtures("plain_attention")
def test_a_dropped_sampler_frees_its_graphs(bench: _Bench) -> None:
    """Would catch a cycle, which keeps the memory of a snapshot's cache until a collection happens to run."""
    sampler = bench.use(Recorder())
    bench.sample([bench.ask("a", "s0")])
    graphs = sampler._runner._graphs
    assert graphs is not None
    held = (graphs, graphs._logits, sampler._runner._cache)
    kept: list[weakref.ref[Any]] = [weakref.ref(thing) for thing in held]
    bench.engine._samplers.clear()
    gc.disable()
    try:
        del sampler, graphs, held
        assert [ref() for ref in kept] == [None, None, None]
    finally:
        gc.enable()


def test_graphs_are_few_and_hold_what_they_serve() -> None:
    """Would catch a graph with fewer rows or narrower tables than its step."""
    assert [padded_rows(n) for n in (1, 2, 3, 5, 9, 17, 33, 65, 100, 129, 200, 256)] == [
        *(1, 2, 4, 8, 16, 24, 40, 80, 112, 160, 224, 256)
    ]
    assert all(n <= padded_rows(n) for n in range(1, 300))
    assert len({padded_rows(n) for n in range(1, 257)}) < 22
    assert [padded_blocks(n) for n in (1, 128, 129, 513)] == [128, 128, 512, 2048]


@pytest.mark.gpu
def test_captures_that_fail_or_are_dropped_leave_nothing_behind(device: str) -> None:
    """Would catch a stream that stays the current one, an allocator that gives nothing back, and a pool of graphs that
    is refused when all have gone and a tensor still lies in it.
    """
    x = torch.zeros(4, device=device)
    stream, capture, kept = torch.cuda.current_stream(), CudaCapture(x.device), []

    def step() -> None:
        x.add_(1)
        kept.append(x + 1)

    def read_back() -> None:
        assert x.max().item() == 0

    with pytest.raises(RuntimeError, match="reads back"):
        capture(read_back)
    with pytest.raises(RuntimeError, match="captur"):
        capture(torch.cuda.synchronize)
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()
    for _ in range(2):
        replay = capture(step)
        before = float(x[0])
        replay()
        assert x.tolist() == [before + 1] * 4
        del replay
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_cuda_graphs_sample_what_passes_of_torch_sample(
    qwen3_folder: str, device: str, precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The real thing: greedy tokens equal those of steps that are not captured, also of weights published later, and a
    dropped sampler gives its memory back.
    """
    outputs = []
    for is_captured in (True, False):
        bench = _Bench(qwen3_folder, device, precision)
        sampler = Sampler(bench.base, _CACHE_BYTES)
        graphs = sampler._runner._graphs
        assert graphs is not None
        graphs._can_capture = is_captured
        bench.engine._samplers[qwen3_folder] = sampler
        names = [None, "s0", "s1", "s2", None] if bench.base.routing.is_grouped else ["s0"] * 5
        requests = [bench.ask(f"r{i}", name, temperature=0.0) for i, name in enumerate(names)]
        outputs.append(bench.sample(requests[:2], requests[2:]))
        bench.publish("s0", rank=4, seed=9)
        outputs[-1] |= bench.sample([bench.ask("later", names[1], temperature=0.0)])
        assert bool(graphs._graphs) == is_captured
        num_bytes = torch.cuda.memory_allocated()
        bench.engine._samplers.clear()
        del sampler, graphs
        assert torch.cuda.memory_allocated() < num_bytes - 0.9 * _CACHE_BYTES
    assert not [record for record in caplog.records if "CUDA graphs" in record.getMessage()]
    captured, expected = outputs
    tolerance = MODEL if precision == "float32" else 0.1
    for name, output in captured.items():
        for one, other in zip(output.sequences, expected[name].sequences, strict=True):
            same = one.tokens_T == other.tokens_T
            num_same = len(same) if same.all() else int(np.argmin(same))
            # In bf16 a tie may fall either way, and what comes after it is another sample.
            assert num_same == len(same) or (precision == "bfloat16" and num_same > 0)
            assert_logprobs_near(one.logprobs_T[:num_same], other.logprobs_T[:num_same], tolerance)
