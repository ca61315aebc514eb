"""Training several adapters in one pass against one after another: tokens per second of each, and the ratio.

python -m bench.tenants
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, save_record


def run(
    model: str, device: str, precision: str, num_tenants: int, num_sequences: int, length: int, rank: int
) -> tuple[float, float]:
    """Best seconds of a forward-backward of every tenant: together, and one after another, in turn."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import ForwardBackward, LoraSpec, TrainingDatum

    engine = TorchEngine(base_models=[model], device=device, precision=precision)
    rng = np.random.default_rng(0)
    requests = []
    for tenant in range(num_tenants):
        engine.create_model(str(tenant), model, LoraSpec(rank=rank, seed=tenant))
        data_D = [
            TrainingDatum(
                tokens_T=rng.integers(0, 2000, length), loss_fn_inputs={"target_tokens": rng.integers(0, 2000, length)}
            )
            for _ in range(num_sequences)
        ]
        requests.append(ForwardBackward(model_id=str(tenant), data_D=data_D, loss_fn="cross_entropy"))
    together, apart = [], []
    for _ in range(7):
        start = now(device)
        engine.forward_backward(requests)
        middle = now(device)
        for request in requests:
            engine.forward_backward([request])
        together.append(middle - start)
        apart.append(now(device) - middle)
    return min(together), min(apart)


def main() -> None:
    """Print the ratio at each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rank", type=int, default=32)
    options = parse_options(parser)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        for count in (1, 4, 16, 64):
            sizes = (options.tenants, count, options.length, options.rank)
            together, apart = isolated(run, model, options.device, options.precision, *sizes)
            tokens = options.tenants * count * options.length
            figures[f"ratio_at_{count}"] = apart / together
            print(
                f"{count:3} sequences each: together {tokens / together:8.0f} tokens/s, "
                f"one after another {tokens / apart:8.0f} tokens/s, ratio {apart / together:.2f}"
            )
    if options.save:
        save_record(f"tenants-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()
