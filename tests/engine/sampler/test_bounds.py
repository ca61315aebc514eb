"""What a sampler gives back: blocks after any end of a request, and an error for the one whose model has diverged."""

from collections.abc import Iterator

import numpy as np
import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec, SampleOutput, SampleRequest
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.scheduler import Scheduler
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.errors import InputError


def _requests(count: int, base_model: str, seed: int) -> Iterator[SampleRequest]:
    """Short requests of 1 or 2 tokens, some in groups, some on a prompt that others have too."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        yield SampleRequest(
            request_id=f"{seed}-{index}",
            base_model=base_model,
            snapshot_id=None,
            prompt_T=np.arange(20) if index % 5 == 0 else rng.integers(0, 256, rng.integers(1, 40)),
            num_samples=3 if index % 7 == 0 else 1,
            max_tokens=1 + index % 2,
            stop=[],
            seed=index,
        )


def _drain(engine: TorchEngine) -> dict[str, SampleOutput | SampleFailure]:
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in engine.step_samples()}
    return outputs


def test_ten_thousand_requests_leave_the_pool_as_it_was() -> None:
    """By integers alone: would catch a block lost once in many admissions, forks, preemptions and cancellations."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(BlockManager(40, 4), max_running=16, budget_tokens=64)
    num_done = 0
    for request in _requests(10_000, "m", 0):
        prompt = request.prompt_T.tolist()
        scheduler.submit(
            Sequence(
                request=request,
                index=0,
                tokens=list(prompt),
                num_prompt=len(prompt),
                max_total=len(prompt) + 2,
                seed=0,
                stop_tokens=frozenset(),
                stop_strings=(),
                num_forks=request.num_samples - 1,
            )
        )
        while len(scheduler.waiting) > 8 or (len(scheduler.running) > 8):
            num_done += _advance(scheduler)
            if scheduler.running and rng.random() < 0.1:
                scheduler.finish(scheduler.running[rng.integers(len(scheduler.running))])
                num_done += 1
    while scheduler.waiting or scheduler.running:
        num_done += _advance(scheduler)
    assert num_done >= 10_000
    blocks = scheduler.blocks
    assert blocks.num_free == blocks.num_blocks
    assert len(blocks._known) == len(blocks._keys) <= blocks.num_blocks
    assert sorted(blocks._free) == list(range(blocks.num_blocks))


def _advance(scheduler: Scheduler) -> int:
    """One pass; the number of sequences that it ends."""
    plan = scheduler.plan()
    for piece in plan.pieces:
        scheduler.advance(piece)
    num_done = 0
    for piece in plan.pieces:
        if piece.is_last:
            parent = piece.sequence
            children = [parent.fork(index) for index in range(1, parent.num_forks + 1)]
            parent.num_forks = 0
            for child in children:
                scheduler.fork(parent, child)
            for sequence in (parent, *children):
                sequence.tokens.append(0)
                if sequence.is_finished:
                    scheduler.finish(sequence)
                    num_done += 1
    return num_done


@pytest.mark.parametrize("is_native", [True, False])
def test_hundreds_of_real_requests_leave_the_pool_as_it_was(
    engine: TorchEngine, qwen3_folder: str, is_native: bool
) -> None:
    """In a cache so small that they preempt each other, a tenth of them canceled."""
    sampler = Sampler(engine._bases[qwen3_folder], cache_bytes=24 * 16 * 2 * 2 * 2 * 16 * 4, is_native=is_native)
    engine._samplers[qwen3_folder] = sampler
    num_blocks = sampler.num_free_blocks
    assert num_blocks == 24
    answered: set[str] = set()
    canceled = {request.request_id for request in list(_requests(300, qwen3_folder, 1))[::10]}
    for request in _requests(300, qwen3_folder, 1):
        engine.submit_sample(request)
        answered |= {output.request_id for output in engine.step_samples()}
        if request.request_id in canceled:
            engine.cancel_sample(request.request_id)
    answered |= set(_drain(engine))
    assert len(answered | canceled) == 300
    assert sampler.num_free_blocks == num_blocks
    assert not sampler._scheduler.running
    assert not sampler._scheduler.waiting


@pytest.mark.parametrize("is_native", [True, False])
def test_a_diverged_model_fails_its_own_requests_only(engine: TorchEngine, qwen3_folder: str, is_native: bool) -> None:
    """Would catch a NaN that is given as a logprob, or reaches others through the batch or through blocks."""
    engine.create_model("good", qwen3_folder, LoraSpec(rank=4))
    engine.snapshot("good", "good")
    engine._model("good").params.fill_(float("nan"))
    engine.snapshot("good", "bad")
    prompt_T = np.arange(30)
    requests = [
        SampleRequest(
            request_id=f"{name}-{index}",
            base_model=qwen3_folder,
            snapshot_id=None if name == "bare" else name,
            prompt_T=prompt_T[: 12 + 4 * index],
            num_samples=2,
            max_tokens=20,
            temperature=index / 2,
            top_p=0.9 if index == 1 else 1.0,
            stop=[],
            seed=index,
        )
        for index in range(3)
        for name in ("bad", "good", "bare")
    ]
    size = 60 * 16 * 2 * 2 * 2 * 16 * 4
    sampler = Sampler(engine._bases[qwen3_folder], cache_bytes=size, is_native=is_native)
    engine._samplers[qwen3_folder] = sampler
    for request in requests:
        engine.submit_sample(request)
    mixed = _drain(engine)
    for request in requests:
        if request.snapshot_id != "bad":  # again, in the blocks that the diverged ones left
            engine.submit_sample(request)
    again = _drain(engine)
    engine._samplers[qwen3_folder] = Sampler(engine._bases[qwen3_folder], cache_bytes=size, is_native=is_native)
    for request in requests:
        if request.snapshot_id == "bad":
            failure = mixed[request.request_id]
            assert isinstance(failure, SampleFailure)
            assert isinstance(failure.error, InputError)
            assert "diverged" in str(failure.error)
            continue
        engine.submit_sample(request)
        expected = _drain(engine)[request.request_id]
        for output in (mixed[request.request_id], again[request.request_id]):
            assert isinstance(output, SampleOutput)
            assert isinstance(expected, SampleOutput)
            for one, other in zip(output.sequences, expected.sequences, strict=True):
                assert one.tokens_T.tolist() == other.tokens_T.tolist()
                assert np.isfinite(one.logprobs_T).all()
    assert sampler.num_free_blocks == 60


def test_owners_share_no_prefix_of_the_bare_base_model(engine: TorchEngine, qwen3_folder: str) -> None:
    """Would catch a tenant that learns from the time of an answer what others have asked."""
    hits = []
    for index, owner in enumerate(["a", "a", "b", "b", "a", ""]):
        engine.submit_sample(
            SampleRequest(
                request_id=str(index),
                base_model=qwen3_folder,
                snapshot_id=None,
                prompt_T=np.arange(40),
                seed=0,
                owner=owner,
                max_tokens=1,
            )
        )
        output = _drain(engine)[str(index)]
        assert isinstance(output, SampleOutput)
        hits.append(output.num_reused_tokens)
    assert hits == [0, 32, 0, 32, 32, 0]
