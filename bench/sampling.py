"""Sampled tokens per second: cookhouse's sampler against `transformers`, on the same weights and prompts.

(a) 64 prompts of mixed prompt and output length, against `generate` in static batches, and if asked against its
continuous batching and against llama.cpp; (b) a group of samples of one long prompt against as many separate requests,
both ours; (c) steps of 1 and of 64 rows, against the time that the memory needs to hand over weights, keys and values.
Each side runs in a process of its own, fp32 or bf16, sampling at temperature 1 without filters; ours keeps
log-probabilities of every token as it always does.

    python -m bench.sampling
    python -m bench.sampling --model random:512x8 --precision bfloat16 --continuous --llama PYTHON
    python -m bench.sampling --model random:qwen3-1.7b --precision bfloat16 --static-batch 64 --continuous   # on a GPU
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench.decoding import decode_figures
from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, save_record


@dataclass(frozen=True, kw_only=True)
class Load:
    """Prompts and how many tokens each is to be continued by."""

    prompts: list[list[int]]
    num_new: list[int]

    @property
    def num_sampled(self) -> int:
        """Tokens that the whole load asks for."""
        return sum(self.num_new)


def make_load(count: int, seed: int) -> Load:
    """Prompts of 16 to 256 tokens, outputs of 16 to 128, both log-uniform."""
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(np.log(16), np.log(256), count)).astype(int)
    num_new = np.exp(rng.uniform(np.log(16), np.log(128), count)).astype(int)
    return Load(prompts=[rng.integers(0, 2000, n).tolist() for n in lengths], num_new=num_new.tolist())


def warm_up(load: Load, device: str) -> Load:
    """What a side runs before the clock. On a GPU it is as large as the load: each size of batch is prepared once."""
    return make_load(len(load.prompts) if device == "cuda" else 8, seed=1)


def run_cookhouse(model: str, device: str, precision: str, load: Load) -> float:
    """Seconds of our sampler for the load."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import SampleRequest

    engine = TorchEngine(base_models=[model], device=device, precision=precision)

    def run(part: Load) -> float:
        start = now(device)
        for i, (prompt, num_new) in enumerate(zip(part.prompts, part.num_new, strict=True)):
            engine.submit_sample(
                SampleRequest(
                    request_id=str(i),
                    base_model=model,
                    snapshot_id=None,
                    prompt_T=np.array(prompt),
                    max_tokens=num_new,
                    stop=[],
                    seed=i,
                )
            )
        while engine.has_samples():
            engine.step_samples()
        return now(device) - start

    run(warm_up(load, device))
    return run(load)


def run_decoding(model: str, device: str, precision: str, num_rows: Sequence[int]) -> dict[str, float]:
    """Figures of decoding steps of each number of rows."""
    from cookhouse.engine import TorchEngine

    figures: dict[str, float] = {}
    for rows in num_rows:
        # An engine each: what one keeps of other sizes is no part of it.
        figures |= decode_figures(
            TorchEngine(base_models=[model], device=device, precision=precision), model, device, rows
        )
    return figures


def run_group(model: str, device: str, precision: str, is_grouped: bool) -> float:
    """Seconds to the first token of each of 16 samples of one prompt of 512 tokens, the best of four."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import SampleRequest

    engine = TorchEngine(base_models=[model], device=device, precision=precision)
    best = float("inf")
    for attempt in range(4):
        prompt_T = np.random.default_rng(attempt).integers(0, 2000, 512)
        start = now(device)
        for i in range(1 if is_grouped else 16):
            engine.submit_sample(
                SampleRequest(
                    request_id=str(i),
                    base_model=model,
                    snapshot_id=None,
                    # Separate prompts differ in their first token, so that none shares a prefix with another.
                    prompt_T=np.concatenate([[i], prompt_T[1:]]),
                    num_samples=16 if is_grouped else 1,
                    max_tokens=1,
                    stop=[],
                    seed=i,
                )
            )
        while engine.has_samples():
            engine.step_samples()
        best = min(best, now(device) - start)
    return best


def run_generate(model: str, device: str, precision: str, load: Load, batch_size: int) -> float:
    """Seconds of `generate` in static batches of neighbors by prompt length; a batch runs to its longest output."""
    import torch
    from transformers import AutoModelForCausalLM

    peer = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision)).to(device).eval()
    order = sorted(range(len(load.prompts)), key=lambda i: len(load.prompts[i]))

    def run(members: list[int]) -> None:
        longest = max(len(load.prompts[i]) for i in members)
        tokens = torch.zeros(len(members), longest, dtype=torch.int64)
        mask = torch.zeros_like(tokens)
        for row, i in enumerate(members):
            tokens[row, longest - len(load.prompts[i]) :] = torch.tensor(load.prompts[i])
            mask[row, longest - len(load.prompts[i]) :] = 1
        num_new = max(load.num_new[i] for i in members)
        limits = {"max_new_tokens": num_new, "min_new_tokens": num_new}
        peer.generate(tokens.to(device), attention_mask=mask.to(device), do_sample=True, top_k=0, **limits)

    with torch.no_grad():
        run(order[: batch_size if device == "cuda" else 4])
        start = now(device)
        for first in range(0, len(order), batch_size):
            run(order[first : first + batch_size])
    return now(device) - start


def run_continuous(model: str, device: str, precision: str, load: Load) -> float:
    """Seconds of the continuous batching of `transformers`, each request with its own limit.

    On a CPU its cache and passes get the sizes of the load: those that it chooses there are several times slower.
    """
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    peer = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision)).to(device).eval()
    config = GenerationConfig(do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0)
    fitted = {"num_blocks": 2 * len(load.prompts), "max_batch_tokens": 512} if device == "cpu" else {}
    sizes = ContinuousBatchingConfig(**fitted)
    with peer.continuous_batching_context_manager(
        generation_config=config, continuous_batching_config=sizes
    ) as manager:

        def run(part: Load) -> float:
            start = now(device)
            for prompt, num_new in zip(part.prompts, part.num_new, strict=True):
                manager.add_request(prompt, max_new_tokens=num_new)
            left = len(part.prompts)
            while left:
                result = manager.get_result(timeout=600)
                if result is None or result.error:
                    raise RuntimeError(f"continuous batching failed: {result and result.error}")
                left -= result.is_finished()
            return now(device) - start

        run(warm_up(load, device))
        return run(load)


def run_llama(python: str, model: str, device: str, precision: str, load: Load) -> float | None:
    """Seconds of `llama-cpp-python` under another Python; None, and a line that says why, if it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.json"
        path.write_text(json.dumps({"prompts": load.prompts, "num_new": load.num_new}), encoding="utf-8")
        threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        command = [python, str(Path(__file__).with_name("llama.py")), model, str(path), precision, threads, device]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"llama-cpp-python was left out: {done.stderr.strip().splitlines()[-1]}")
        return None
    return float(done.stdout)


def main() -> None:
    """Measure all sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--static-batch", type=int, default=16, help="prompts in each batch of `generate`")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 64], help="of decoding steps alone; none: leave out")
    parser.add_argument("--alone", action="store_true", help="leave out the peers, and groups")
    parser.add_argument("--continuous", action="store_true", help="measure the peer's continuous batching as well")
    parser.add_argument(
        "--llama", metavar="PYTHON", help="a Python that has llama-cpp-python and gguf, to measure it too"
    )
    options = parse_options(parser)
    load = make_load(options.prompts, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        side = (model, options.device, options.precision)
        seconds = {"cookhouse": isolated(run_cookhouse, *side, load)}
        decoding = isolated(run_decoding, *side, options.rows)
        if not options.alone:
            seconds["generate"] = isolated(run_generate, *side, load, options.static_batch)
        if options.continuous:
            seconds["continuous"] = isolated(run_continuous, *side, load)
        if options.llama:
            llama_seconds = run_llama(options.llama, *side, load)
            if llama_seconds is not None:
                seconds["llama"] = llama_seconds
        if not options.alone:
            grouped, separate = (isolated(run_group, *side, flag) for flag in (True, False))
    figures = {f"{name}_tokens_per_second": load.num_sampled / value for name, value in seconds.items()}
    figures |= {
        f"ratio_to_{name}": value / seconds["cookhouse"] for name, value in seconds.items() if name != "cookhouse"
    }
    if not options.alone:
        figures["group_ratio"] = separate / grouped
    figures |= decoding
    for name, value in figures.items():
        print(f"{name:32} {value:10.4g}")
    if options.save:
        save_record(f"sampling-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()
