"""DPO of a pretrained model on pairs as people wrote them: the margin moves as with TRL's DPOTrainer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from bench.dpo import Case, run_cookhouse, run_trl
from bench.harness import isolated

from cookhouse.algorithms.pairs.dataset import PairDataset, render_pairs
from cookhouse.chat import get_renderer
from cookhouse.data.rows.comparisons import read_pairs
from cookhouse.models.catalog import default_renderer
from cookhouse.models.tokenizers import get_tokenizer

NUM_STEPS = 10
NUM_PAIRS = 2
MAX_LENGTH = 64


def _case(model: str, pairs_file: Path) -> Case:
    renderer = get_renderer(default_renderer(model), get_tokenizer(model))
    pairs = render_pairs(read_pairs(pairs_file), renderer, max_length=MAX_LENGTH)
    # Answers end where the cut is, on both sides alike; prompts leave them some room.
    some = [p for p in pairs if p.lost_answer is None and int(p.chosen.weights_T.argmax()) <= MAX_LENGTH - 24]
    # Each again and again: the margin of a pair moves by what was learned of it.
    dataset = PairDataset(some[:NUM_PAIRS] * (NUM_STEPS // NUM_PAIRS), batch_size=1)
    dataset.set_epoch(0)
    return Case(
        model=model,
        device="cpu",
        dataset=dataset,
        num_steps=NUM_STEPS,
        num_warmup=0,
        rank=0,
        learning_rate=1e-6,
        beta=0.1,
    )


@pytest.mark.long
@pytest.mark.real
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is in the extra `bench`")
def test_ten_steps_move_the_margin_as_with_trl(smollm2: Path, shared: Path) -> None:
    # Catches what only shows at real weights and text: a chat format with weight on the prompt, a reference in another
    # precision, a beginning that both answers share and only one of them sees.
    case = _case(str(smollm2), shared / "data" / "preference" / "dpo_en_demo.jsonl")
    assert len(case.dataset) == NUM_STEPS
    ours, peer = (isolated(run, case, "float32") for run in (run_cookhouse, run_trl))
    assert len(ours.margins) == len(peer.margins) == NUM_STEPS
    # All weights are trained, by a model of their own: it is apart from that of the reference by rounding.
    assert ours.margins[0] == pytest.approx(0.0, abs=1e-4)
    assert ours.margins[-1] > 0.5
    # 1e-5 was seen of both. A logprob of 135 M weights is off by some 1e-5 (fp32), a margin is β of a sum of dozens of
    # them, and Adam's first steps know but the sign of a gradient, also where that is next to nothing.
    np.testing.assert_allclose(ours.margins, peer.margins, atol=1e-4)
    np.testing.assert_allclose(ours.losses, peer.losses, rtol=1e-4)
