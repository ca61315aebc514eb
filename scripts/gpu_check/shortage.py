"""Part of stage `memory`: memory that runs out on purpose, in a pass and in samples, and what the engine does after it.

On a GPU torch is kept to what it holds and a little more, so that a large pass really runs out; on a CPU nothing does.
"""

import argparse
import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import model_folder
from scripts.gpu_check.figures import show

_SPARE_BYTES = 64 * 2**20
_SMALL, _LARGE = (2, 64), (32, 1024)
"""Sequences, and tokens of each."""


def run(model: str, device: str) -> dict[str, Any]:
    """What was said of each shortage, and how far a pass afterwards is from one before."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    on_gpu = device == "cuda"
    engine = TorchEngine(base_models=[model], device=device, max_activation_bytes=2**40)
    engine.create_model("m", model, LoraSpec(rank=8, seed=1))
    before = _pass(engine, *_SMALL)
    assert not isinstance(before, Exception), before
    figures: dict[str, Any] = {}
    for name, act in (("pass", _pass), ("samples", _samples)):
        with _Little(on_gpu):
            said = act(engine, *(_LARGE if on_gpu else _SMALL))
        figures[f"shortage_in_{name}"] = str(said)[:160] if isinstance(said, Exception) else "none"
        show(figures)
        after = _pass(engine, *_SMALL)
        assert not isinstance(after, Exception), f"after a shortage in {name}: {after}"
        figures[f"difference_after_{name}"] = float(np.abs(after - before).max())
    if on_gpu:
        import torch

        gc.collect()
        torch.cuda.empty_cache()
        figures["gigabytes_at_the_end"] = torch.cuda.memory_allocated() / 1e9
    return figures


class _Little:
    """Torch may take little more than it holds, while this is entered."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on

    def __enter__(self) -> None:
        self._set(None)

    def __exit__(self, *_: object) -> None:
        self._set(1.0)

    def _set(self, share: float | None) -> None:
        if self._is_on:
            import torch

            torch.cuda.empty_cache()
            held = torch.cuda.memory_reserved() + _SPARE_BYTES
            share = held / torch.cuda.mem_get_info()[1] if share is None else share
            torch.cuda.set_per_process_memory_fraction(share)


def _pass(engine: Any, num_sequences: int, length: int) -> Any:
    """Log-probabilities of one pass that trains, or the error."""
    from cookhouse.engine.contract import ForwardBackward, TrainingDatum

    rng = np.random.default_rng(0)
    data = [
        TrainingDatum(tokens_T=tokens_T[:-1], loss_fn_inputs={"target_tokens": tokens_T[1:]})
        for tokens_T in rng.integers(0, 250, (num_sequences, length + 1))
    ]
    (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data, loss_fn="cross_entropy")])
    return output if isinstance(output, Exception) else np.concatenate(output.logprobs_D)


def _samples(engine: Any, num_sequences: int, length: int) -> Any:
    """The first error of samples, or nothing."""
    from cookhouse.engine.contract import SampleRequest

    for i in range(num_sequences):
        request = SampleRequest(
            request_id=str(i),
            base_model=engine.base_models()[0].name,
            snapshot_id=None,
            prompt_T=np.random.default_rng(i).integers(0, 250, length),
            seed=i,
            max_tokens=8,
            stop=[],
        )
        try:
            engine.submit_sample(request)
        # A refusal is one of the answers that are right here.
        except Exception as error:
            return error
    found = None
    while engine.has_samples():
        for output in engine.step_samples():
            found = found or getattr(output, "error", None)
    return found


def main() -> None:
    """The memory of this process is the engine's alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        figures = run(model, options.device)
    show(figures)
    if options.device == "cuda":
        assert figures["shortage_in_pass"] != "none", "a pass that cannot fit was said to have fitted"


if __name__ == "__main__":
    main()
