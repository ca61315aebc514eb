"""Model-flops utilization of training an adapter: what the engine computes a second, of what the device could.

A step is a `forward_backward` and an `optim_step` of the engine, called in its own process and not over the wire.
Counted are the products that the model needs (see `bench.flops`): recomputation, norms and the optimizer are not.

    python -m bench.mfu --model random:qwen3-8b             # on a GPU
    python -m bench.mfu --model random:256x4 --precision float32 --tokens 2048 --length 256
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bench.flops import peak_flops, training_work
from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, peak_bytes, save_record
from bench.kinds import time_by_kind


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of one run; seconds are those of the median step."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import AdamStep, ForwardBackward, LoraSpec, TrainingDatum

    engine = TorchEngine(base_models=[model], device=options.device, precision=options.precision)
    spec = LoraSpec(rank=options.rank)
    engine.create_model("m", model, spec)
    base = engine._bases[model]
    rng = np.random.default_rng(0)
    lengths = [options.length] * (options.tokens // options.length)
    data_D = [
        TrainingDatum(
            tokens_T=rng.integers(0, base.info.vocab_size, length),
            loss_fn_inputs={"target_tokens": rng.integers(0, base.info.vocab_size, length)},
        )
        for length in lengths
    ]
    request = ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")

    def step() -> None:
        (output,) = engine.forward_backward([request])
        if isinstance(output, Exception):
            raise output
        engine.optim_step("m", AdamStep(learning_rate=1e-5))

    seconds = []
    for index in range(options.warmup + options.steps):
        start = now(options.device)
        step()
        if index >= options.warmup:
            seconds.append(now(options.device) - start)
    work = training_work(base, base.adapter_layout(spec))
    peak, source = peak_flops(options.device, options.precision, options.peak_tflops)
    return {
        "seconds": float(np.median(seconds)),
        "num_tokens": sum(lengths),
        "flops": work.flops(lengths),
        "attention_share": 1 - work.of_tokens(sum(lengths)) / work.flops(lengths),
        "peak": peak,
        "source": source,
        "peak_bytes": peak_bytes(options.device),
        "kinds": time_by_kind(step, options.device) if options.profile else {},
    }


def main() -> None:
    """Print both sides of the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random:qwen3-1.7b", help=MODEL_HELP)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens of a step")
    parser.add_argument("--length", type=int, default=2048, help="tokens of each sequence")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, help="of the device; default: its datasheet, or measured")
    parser.add_argument("--profile", action="store_true", help="print where the time of one step goes")
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        found = isolated(measure, model, options)
    figures = report(options, found)
    if options.save:
        save_record(f"mfu-{options.model}-{options.precision}", vars(options), figures)


def report(options: argparse.Namespace, found: Mapping[str, Any]) -> dict[str, float]:
    """Print the figures and return those that a record keeps."""
    num_tokens, seconds, flops = found["num_tokens"], found["seconds"], found["flops"]
    achieved = flops / seconds
    print(
        f"{options.model}, {options.precision}, rank {options.rank}, {num_tokens // options.length} × {options.length} "
        f"tokens a step: {seconds:.3f} s, {num_tokens / seconds:.0f} tokens/s, {found['peak_bytes'] / 2**30:.2f} GiB"
    )
    print(
        f"{flops / num_tokens / 1e9:.3f} GFLOP a token, {found['attention_share']:.1%} of it attention: "
        f"{achieved / 1e12:.3f} TFLOP/s"
    )
    print(f"peak {found['peak'] / 1e12:.3f} TFLOP/s ({found['source']})")
    print(f"utilization {achieved / found['peak']:.1%}")
    for kind, share in found["kinds"].items():
        print(f"  {kind:12} {share:6.1%} of the time of a profiled step")
    return {
        "tokens_per_second": num_tokens / seconds,
        "tflops": achieved / 1e12,
        "peak_tflops": found["peak"] / 1e12,
        "utilization": achieved / found["peak"],
        "peak_bytes": found["peak_bytes"],
        **{f"share_{kind}": share for kind, share in found["kinds"].items()},
    }


if __name__ == "__main__":
    main()
