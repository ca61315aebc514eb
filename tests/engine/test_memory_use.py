"""What an engine says of its caches, for whoever operates it."""

import numpy as np

from cookhouse.assets import TINY_MODEL
from cookhouse.engine.contract import SampleRequest
from tests.engine.worker.real_engine import TinyEngine


def test_a_cache_is_used_while_sequences_run() -> None:
    """Would catch blocks counted as used that are free again, and sequences put down to others."""
    engine = TinyEngine()
    assert engine.memory_use().caches == ()
    for index, owner in enumerate(("alice", "bob", "bob")):
        request = SampleRequest(
            request_id=f"r{index}",
            base_model=TINY_MODEL,
            snapshot_id=None,
            prompt_T=np.arange(1, 40),
            seed=1,
            owner=owner,
            max_tokens=2,
            stop=[],
        )
        engine.submit_sample(request)
    (waiting,) = engine.memory_use().caches
    assert (waiting.num_used_blocks, waiting.running, waiting.waiting) == (0, {}, {"alice": 1, "bob": 2})
    engine.step_samples()
    (running,) = engine.memory_use().caches
    assert (running.base_model, running.running, running.waiting) == (TINY_MODEL, {"alice": 1, "bob": 2}, {})
    assert 0 < running.num_used_blocks <= running.num_blocks <= running.max_blocks
    while engine.has_samples():
        engine.step_samples()
    (idle,) = engine.memory_use().caches
    assert (idle.num_used_blocks, idle.running, idle.waiting) == (0, {}, {})
