"""DPO and TRL's DPOTrainer: the same losses on the same model, pairs, order and reference."""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from bench.dpo import make_case, run_cookhouse, run_trl
from bench.harness import isolated


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is in the extra `bench`")
@pytest.mark.parametrize(("rank", "learning_rate"), [pytest.param(0, 2e-4, marks=pytest.mark.long), (32, 2e-3)])
def test_five_steps_have_the_losses_of_trl(tmp_path: Path, rank: int, learning_rate: float) -> None:
    # Catches a loss, a gradient, a reference or an optimizer that is another one than the field's, and adapters that do
    # not begin alike.
    options = argparse.Namespace(
        model="cookhouse/tiny",
        device="cpu",
        max_length=100,
        steps=5,
        warmup=0,
        batch_size=16,
        rank=rank,
        learning_rate=learning_rate,
        beta=0.1,
    )
    case = make_case(options, tmp_path / "model")
    ours, peer = (isolated(run, case, "float32").losses for run in (run_cookhouse, run_trl))
    assert len(ours) == len(peer) == 5
    assert ours[-1] < 0.5 < ours[0]
    # Five steps of Adam make more of rounding where a gradient is next to nothing; 5e-7 was seen.
    np.testing.assert_allclose(ours, peer, rtol=1e-4)
