"""Catches a fused pass whose attention holds only for the shapes of one model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampledSequence, SampleOutput, SampleRequest
from cookhouse.engine.sampler import Sampler
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.families import save_family
from tests.engine.numerics import MODEL, assert_logprobs_near
from tests.engine.stepping import advance

PROMPTS = [np.random.default_rng(length).integers(0, VOCAB_SIZE, length) for length in (1, 16, 45, 83)]


def _sample(engine: TorchEngine, folder: str, *, is_native: bool) -> tuple[list[SampledSequence], list[np.ndarray]]:
    """Sequences and log-probabilities of the prompts, through the fused pass or through torch."""
    sampler = Sampler(engine._bases[folder], cache_bytes=2**22, is_native=is_native)
    if is_native and sampler._runner._kernel is None:
        pytest.skip("there is no compiler")
    engine._samplers[folder] = sampler
    for i, prompt_T in enumerate(PROMPTS):
        engine.submit_sample(
            SampleRequest(
                request_id=str(i),
                base_model=folder,
                snapshot_id=None,
                prompt_T=prompt_T,
                max_tokens=8,
                stop=[],
                seed=i,
                prompt_logprobs=True,
            )
        )
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
    ordered = [outputs[str(i)] for i in range(len(PROMPTS))]
    scores = [np.asarray(output.prompt_logprobs_T)[1:] for output in ordered]
    return [output.sequences[0] for output in ordered], scores


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "shape"),
    [
        pytest.param(
            "llama",
            {"hidden_size": 52, "num_attention_heads": 26, "head_dim": 12},
            id="13 heads share keys, no whole vectors",
        ),
        pytest.param("llama", {"num_attention_heads": 2, "head_dim": 64}, id="a head has its own keys"),
        pytest.param("qwen2", {"sliding_window": 21}, id="a window that begins inside a block"),
        pytest.param("qwen3", {"hidden_size": 36, "num_attention_heads": 6, "head_dim": 80}, id="3 heads share keys"),
    ],
)
def test_the_fused_pass_equals_torch(tmp_path: Path, family: str, shape: dict[str, Any], precision: str) -> None:
    """Prompts that end in a block, at its end and behind it, read together and then continued."""
    folder = save_family(tmp_path / family, family, **shape)
    engine = TorchEngine(base_models=[folder], device="cpu", precision=precision)
    (native, scores), (plain, expected) = (_sample(engine, folder, is_native=flag) for flag in (True, False))
    for one, two in zip(scores, expected, strict=True):
        assert_logprobs_near(one, two, MODEL if precision == "float32" else 0.05)
    if precision == "float32":
        for sequence, other in zip(native, plain, strict=True):
            assert sequence.tokens_T.tolist() == other.tokens_T.tolist()
            assert_logprobs_near(sequence.logprobs_T, other.logprobs_T)
