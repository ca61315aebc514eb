"""Catches a cache that stays small while memory is free, takes it before it is needed, or cuts what it cannot hold."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine, switches
from cookhouse.engine.budget import Budget
from cookhouse.engine.contract import NoMemoryError, SampleOutput, SampleRequest
from cookhouse.engine.sampler import Sampler, sampler
from cookhouse.engine.sampler import samplers as samplers_module
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.scheduler import Scheduler
from cookhouse.engine.sampler.sequence import Sequence
from tests.engine.stepping import advance

BLOCK_BYTES = 16 * 2 * 2 * 2 * 16 * 4
"""16 positions of keys and values in 2 layers of 2 heads of 16 fp32 features."""


def _request(base_model: str, num_prompt: int, max_tokens: int | None, name: str = "r", seed: int = 0) -> SampleRequest:
    return SampleRequest(
        request_id=name,
        base_model=base_model,
        snapshot_id=None,
        prompt_T=np.random.default_rng(seed).integers(0, 256, num_prompt),
        max_tokens=max_tokens,
        stop=[],
        seed=seed,
    )


def _drain(engine: TorchEngine) -> dict[str, SampleOutput]:
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
    return outputs


@pytest.fixture
def limited(engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sampler]:
    """Has the engine sample over a cache of four blocks that may grow up to a limit that is asked for each time."""

    def use(limit: Callable[[int], int], **options: Any) -> Sampler:
        monkeypatch.setattr(sampler, "_FIRST_BYTES", 4 * BLOCK_BYTES)
        made = Sampler(engine._bases[qwen3_folder], 100 * BLOCK_BYTES, limit=limit, **options)
        engine._samplers[qwen3_folder] = made
        return made

    return use


@pytest.mark.parametrize(
    "options", [{"is_native": True}, {"is_native": False}, {"is_native": False, "is_copied": True}], ids=str
)
def test_a_cache_grows_when_it_is_needed_and_changes_no_token(
    engine: TorchEngine, qwen3_folder: str, limited: Callable[..., Sampler], options: dict[str, bool]
) -> None:
    requests = [_request(qwen3_folder, 20 + 30 * i, 40, str(i), i) for i in range(5)]
    for request in requests:
        engine.submit_sample(request)
    expected = _drain(engine)
    grown = limited(lambda _: 60 * BLOCK_BYTES, **options)
    assert grown.unused_bytes == (0 if "is_copied" in options else 4 * BLOCK_BYTES)
    blocks = grown._scheduler.blocks
    seen = [blocks.num_blocks]
    for request in requests:
        engine.submit_sample(request)
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
        seen.append(blocks.num_blocks)
    assert seen[0] == 4
    assert seen == sorted(seen)
    assert grown._runner.num_blocks == (seen[-1] if "is_copied" in options else 100)
    assert 4 + 7 + 9 < seen[-1] <= 60  # more than the two longest of them need: none had to wait
    assert grown.num_free_blocks == seen[-1]
    for name, output in outputs.items():
        assert output.sequences[0].tokens_T.tolist() == expected[name].sequences[0].tokens_T.tolist()


def test_what_the_cache_cannot_hold_is_refused_with_figures(
    engine: TorchEngine, qwen3_folder: str, limited: Callable[..., Sampler]
) -> None:
    """Would catch a sample that is cut without a word, and a prompt that waits for ever."""
    limited(lambda _: 10 * BLOCK_BYTES)
    message = r"^64 prompt tokens \+ 200 max_tokens take 0\.13 MiB of key-value cache, and there are 0\.08 MiB \(160 t"
    with pytest.raises(NoMemoryError, match=message + r".*--max-cache-bytes \(COOKHOUSE_MAX_CACHE_BYTES\)"):
        engine.submit_sample(_request(qwen3_folder, 64, 200))
    with pytest.raises(NoMemoryError, match=r"^160 prompt tokens \+ 1 max_tokens take"):
        engine.submit_sample(_request(qwen3_folder, 160, None))
    assert not engine.has_samples()
    engine.submit_sample(_request(qwen3_folder, 64, 96))
    assert len(_drain(engine)["r"].sequences[0].tokens_T) == 96
    engine.submit_sample(_request(qwen3_folder, 64, None))
    assert len(_drain(engine)["r"].sequences[0].tokens_T) == 96


def test_what_was_accepted_ends_when_others_take_the_memory(
    engine: TorchEngine, qwen3_folder: str, limited: Callable[..., Sampler]
) -> None:
    """Would catch sequences that make room for each other for ever."""
    limit = 100 * BLOCK_BYTES
    small = limited(lambda _: limit)
    for i in range(4):
        engine.submit_sample(replace(_request(qwen3_folder, 100, 60, str(i), i), num_samples=2))
    limit = 0
    assert small.unused_bytes == 10 * BLOCK_BYTES  # the longest one has been promised its blocks
    outputs = _drain(engine)
    assert [len(outputs[str(i)].sequences[1].tokens_T) for i in range(4)] == [60] * 4
    assert small._scheduler.blocks.num_blocks == 10


@pytest.mark.parametrize("max_bytes", [2**40, 50 * BLOCK_BYTES])
def test_an_engines_cache_is_sized_by_its_setting_and_by_memory(
    qwen3_folder: str, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    engine = TorchEngine(base_models=[qwen3_folder], device="cpu", precision="float32", max_cache_bytes=max_bytes)
    if max_bytes == 2**40:
        reserve = engine._budget.promised_bytes()
        monkeypatch.setattr(engine._budget, "free", lambda: reserve + 24 * BLOCK_BYTES)
    engine.submit_sample(_request(qwen3_folder, 20, 4))
    most = engine._samplers[qwen3_folder]._scheduler.blocks.num_reachable
    assert most == (24 if max_bytes == 2**40 else 50)


def test_a_dropped_sampler_frees_its_cache_at_once(limited: Callable[..., Sampler], engine: TorchEngine) -> None:
    """Would catch a cycle: what asks for the memory of an idle cache would not find it."""
    made = weakref.ref(limited(lambda _: 60 * BLOCK_BYTES))
    gc.disable()
    try:
        engine._samplers.clear()
        assert made() is None
    finally:
        gc.enable()


def test_known_blocks_give_way_before_the_cache_grows() -> None:
    """Would catch a server that sits on all free memory, for prefixes that nobody will ask for again."""
    manager = BlockManager(4, 4, max_blocks=100, limit=lambda held: held + 96)
    for root in range(20):
        blocks = manager.allocate(2)
        for index in range(2):
            manager.remember(root, blocks, index, [1, 2, 3, 4])
        manager.free(blocks)
    assert manager.num_blocks == 4
    assert manager.provide(5)
    assert manager.num_blocks == 5
    assert manager.num_unused == 1


@pytest.mark.parametrize("seed", range(10))
def test_random_sequences_end_however_memory_comes_and_goes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = BlockManager(3, 4, max_blocks=int(rng.integers(6, 40)), limit=lambda held: held + int(rng.integers(0, 6)))
    scheduler = Scheduler(blocks, max_running=8, budget_tokens=16)
    num_left, num_submitted = 0, 0
    for _ in range(2000):
        total = int(rng.integers(2, 24))
        if num_submitted < 40 and scheduler.can_ever_fit(total):
            num_prompt = int(rng.integers(1, total))
            request = _request("", num_prompt, total - num_prompt)
            scheduler.submit(
                Sequence(
                    request=request,
                    index=0,
                    tokens=request.prompt_T.tolist(),
                    num_prompt=num_prompt,
                    max_total=total,
                    seed=0,
                    stop_tokens=frozenset(),
                    stop_strings=(),
                )
            )
            num_left, num_submitted = num_left + 1, num_submitted + 1
        for piece in scheduler.plan().pieces:
            scheduler.advance(piece)
            if piece.is_last:
                piece.sequence.tokens.append(0)
                if piece.sequence.is_finished:
                    scheduler.finish(piece.sequence)
                    num_left -= 1
        assert len(blocks._num_users) == blocks.num_blocks <= blocks.max_blocks
    assert num_submitted == 40
    assert num_left == 0
    assert blocks.num_free == blocks.num_blocks
    assert blocks.num_promised == 0


def test_what_a_step_takes_is_left_to_passes_once(
    engine: TorchEngine, qwen3_folder: str, limited: Callable[..., Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a cache, or an adapter, that leaves no memory for logits and the choice of tokens."""
    samplers, budget = engine._samplers, engine._budget
    before, free = budget.promised_bytes(), 2**20
    monkeypatch.setattr(Sampler, "step_bytes", staticmethod(lambda _: 3000))
    monkeypatch.setattr(budget, "free", lambda: free + before)
    base = engine._bases[qwen3_folder]
    assert samplers._cache_bytes(base, 0) == (free - 3000) // 2
    one = limited(lambda _: 10 * BLOCK_BYTES)
    samplers["another"] = one
    promised = budget.promised_bytes(but_for={"cache"}) - before
    assert promised == 3000
    samplers.clear()
    assert budget.promised_bytes() == before


def test_a_step_on_a_gpu_takes_logits_and_what_tokens_are_chosen_with() -> None:
    device, numbers = torch.device("cuda", 0), 256 * 1000
    head = SimpleNamespace(vocab_size=1000, logits_dtype=torch.bfloat16)
    base: Any = SimpleNamespace(device=device, head=head)
    assert Sampler.step_bytes(base) == numbers * (4 + 2 + 36)
    head.vocab_size = 2**17
    assert Sampler.step_bytes(base) == 256 * 2**17 * 6 + 2**24 * 36
    base.device = torch.device("cpu")
    assert Sampler.step_bytes(base) == 0


@pytest.mark.parametrize(("chosen", "grows"), [(set(), False), ({"growing_cache"}, True)])
def test_a_cache_on_a_gpu_is_whole_at_once_or_grows_by_copies(
    chosen: set[str], grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a switch that measures nothing, and growth that counts memory which its copy needs."""
    made: list[dict[str, Any]] = []
    stub = SimpleNamespace(step_bytes=lambda _: 0, base=None, unused_bytes=0)

    def note(_: Any, most: int, **options: Any) -> Any:
        made.append(options | {"most": most})
        return stub

    make = MagicMock(side_effect=note, step_bytes=stub.step_bytes)
    monkeypatch.setattr(samplers_module, "Sampler", make)
    monkeypatch.setattr(samplers_module.Samplers, "_pack", lambda *_: None)
    monkeypatch.setattr(switches, "_chosen", lambda: frozenset(chosen))
    shape = SimpleNamespace(num_features=4)
    info = SimpleNamespace(max_context_tokens=2**20)
    base: Any = SimpleNamespace(
        device=torch.device("cuda", 0), dtype=torch.bfloat16, cache_shape=shape, info=info, state_bytes=0
    )
    budget = Budget(torch.device("cpu"), lambda: 8000)
    samplers_module.Samplers(budget, None).of("m", base)
    (options,) = made
    assert (options["is_copied"], options["limit"] is not None) == (grows, grows)
    assert options["most"] == 2800  # four tenths of what is not left to passes
    if grows:
        assert options["limit"](1000) == 3000
