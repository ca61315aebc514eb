"""Stage `rl-memory`: steps of reinforcement learning with answers of many lengths, and the memory that is held at each.

Every step publishes, samples, trains and steps, in this process. Memory that grows with the steps is a leak; held
memory that grows while tensors do not is an allocator in pieces.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import model_folder, now
from scripts.gpu_check.figures import show

_PROMPTS, _GROUP = 8, 8
_PROMPT_TOKENS = (16, 200)
_NEW_TOKENS = (8, 96)
_EVERY = 20


def step(engine: Any, model: str, index: int) -> None:
    """One step; lengths of prompts and answers are the step's own."""
    from cookhouse.engine.contract import AdamStep, ForwardBackward, SampleOutput, SampleRequest, TrainingDatum

    rng = np.random.default_rng(index)
    snapshot = f"s{index}"
    engine.snapshot("m", snapshot)
    prompts = {str(i): rng.integers(0, 250, int(rng.integers(*_PROMPT_TOKENS))) for i in range(_PROMPTS)}
    for name, prompt_T in prompts.items():
        request = SampleRequest(
            request_id=name,
            base_model=model,
            snapshot_id=snapshot,
            prompt_T=prompt_T,
            seed=index,
            num_samples=_GROUP,
            max_tokens=int(rng.integers(*_NEW_TOKENS)),
            stop=[],
        )
        engine.submit_sample(request)
    data = []
    while engine.has_samples():
        for output in engine.step_samples():
            assert isinstance(output, SampleOutput), output
            for one in output.sequences:
                prompt_T, tokens_T = prompts[output.request_id], one.tokens_T.astype(np.int64)
                whole_T = np.concatenate([prompt_T, tokens_T])
                zeros = np.zeros(len(prompt_T) - 1, np.float32)
                inputs = {
                    "target_tokens": whole_T[1:],
                    "logprobs": np.concatenate([zeros, one.logprobs_T]),
                    "advantages": np.concatenate([zeros, np.full(len(tokens_T), rng.normal(), np.float32)]),
                }
                data.append(TrainingDatum(tokens_T=whole_T[:-1], loss_fn_inputs=inputs))
    engine.delete_snapshot(snapshot)
    (trained,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data, loss_fn="importance_sampling")])
    if isinstance(trained, Exception):
        raise trained
    engine.optim_step("m", AdamStep(learning_rate=1e-5))


def main() -> None:
    """Memory at each step goes to the log, figures every few steps to the results."""
    import torch

    from cookhouse.algorithms.base.process_tree import peak_bytes
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        engine = TorchEngine(base_models=[model], device=options.device)
        engine.create_model("m", model, LoraSpec(rank=32, seed=1))
        held: list[tuple[float, float]] = []
        seconds: list[float] = []
        for index in range(options.steps):
            start = now(options.device)
            step(engine, model, index)
            seconds.append(now(options.device) - start)
            if on_gpu:
                held.append((torch.cuda.memory_allocated() / 1e9, torch.cuda.memory_reserved() / 1e9))
            else:
                held.append(((peak_bytes([os.getpid()]) or 0) / 1e9,) * 2)
            print(f"step {index} {seconds[-1]:.3f} s, {held[-1][0]:.4f} GB in tensors, {held[-1][1]:.4f} GB held")
            if (index + 1) % _EVERY == 0 or index + 1 == options.steps:
                show(
                    {
                        "steps": index + 1,
                        "median_step_seconds": float(np.median(seconds)),
                        "tensors_gigabytes_first_last": [held[min(2, index)][0], held[-1][0]],
                        "held_gigabytes_first_last": [held[min(2, index)][1], held[-1][1]],
                        "held_gigabytes_most": max(each for _, each in held),
                    }
                )


if __name__ == "__main__":
    main()
