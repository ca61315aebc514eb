"""Stage `smoke`: one pass, one step and 64 samples of two models in fp32 and bf16; the small one against a CPU's."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import model_folder, now
from numpy.typing import NDArray
from scripts.gpu_check.figures import show

TINY = "cookhouse/tiny"
_LENGTHS = (5, 64, 130, 31)
_SAMPLES = 64
_NEW_TOKENS = 32


def run(model: str, device: str, precision: str) -> dict[str, Any]:
    """Losses before and after a step, log-probabilities of the first pass, seconds, and how many samples came."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import (
        AdamStep,
        ForwardBackward,
        LoraSpec,
        SampleOutput,
        SampleRequest,
        TrainingDatum,
    )

    engine = TorchEngine(base_models=[model], device=device, precision=precision)
    engine.create_model("m", model, LoraSpec(rank=8, seed=1))
    rng = np.random.default_rng(0)
    data = [
        TrainingDatum(tokens_T=tokens_T[:-1], loss_fn_inputs={"target_tokens": tokens_T[1:]})
        for tokens_T in (rng.integers(0, 250, length + 1) for length in _LENGTHS)
    ]
    request = ForwardBackward(model_id="m", data_D=data, loss_fn="cross_entropy")
    seconds, logprobs = [], []
    for _ in range(2):
        start = now(device)
        (output,) = engine.forward_backward([request])
        if isinstance(output, Exception):
            raise output
        logprobs.append(np.concatenate(output.logprobs_D))
        engine.optim_step("m", AdamStep(learning_rate=1e-3))
        seconds.append(now(device) - start)
    engine.snapshot("m", "s")
    engine.submit_sample(
        SampleRequest(
            request_id="r",
            base_model=model,
            snapshot_id="s",
            prompt_T=rng.integers(0, 250, 40),
            seed=3,
            num_samples=_SAMPLES,
            max_tokens=_NEW_TOKENS,
            stop=[],
        )
    )
    start, num_tokens = now(device), 0
    while engine.has_samples():
        for sampled in engine.step_samples():
            assert isinstance(sampled, SampleOutput), sampled
            num_tokens += sum(len(one.tokens_T) for one in sampled.sequences)
    assert num_tokens == _SAMPLES * _NEW_TOKENS, num_tokens
    return {"logprobs": logprobs, "step_seconds": seconds[1], "sample_seconds": now(device) - start}


def distance(one: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> float:
    """The largest difference of two sides' log-probabilities, before and after the step."""
    return max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in zip(one, other, strict=True))


def main() -> None:
    """All in one process, since each costs seconds of imports; figures as they are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--model", required=True, help="the larger one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny = model_folder(TINY, Path(folder), options.device)
        exact = run(tiny, "cpu", "float32")
        for precision in ("float32", "bfloat16"):
            found = run(tiny, options.device, precision)
            show({f"tiny_{precision}_from_cpu": distance(found["logprobs"], exact["logprobs"])})
            _check_learns(found, f"{TINY} in {precision}")
        model = model_folder(options.model, Path(folder) / "model", options.device)
        for precision in ("float32", "bfloat16"):
            found = run(model, options.device, precision)
            show({f"{precision}_{name}": found[name] for name in ("step_seconds", "sample_seconds")})
            _check_learns(found, f"{options.model} in {precision}")


def _check_learns(found: dict[str, Any], what: str) -> None:
    before, after = (float(logprobs.mean()) for logprobs in found["logprobs"])
    assert np.isfinite([before, after]).all(), f"{what}: the loss is {-before}, then {-after}"
    assert after > before, f"{what}: a step made the loss {-before} worse, {-after}"


if __name__ == "__main__":
    main()
