"""Milliseconds to publish new sampler weights of the embedded model: the engine's pointer swap, and over the wire.

python -m bench.publish
"""

import argparse
import statistics
import time

from bench.harness import now, parse_options, save_record, serving

from cookhouse.assets import TINY_MODEL

ROUNDS = 30


def engine_seconds(device: str, rank: int) -> float:
    """Median seconds of `snapshot` in the engine."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    engine = TorchEngine(base_models=[TINY_MODEL], device=device)
    engine.create_model("m", TINY_MODEL, LoraSpec(rank=rank))
    seconds = []
    for i in range(ROUNDS):
        start = now(device)
        engine.snapshot("m", str(i))
        seconds.append(now(device) - start)
        engine.delete_snapshot(str(i))
    return statistics.median(seconds)


def wire_seconds(device: str, rank: int) -> float:
    """Median seconds of `save_weights_and_get_sampling_client` through the SDK against a server process."""
    import tinker

    with serving(device) as server:
        client = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        training = client.create_lora_training_client(TINY_MODEL, rank=rank).result()
        seconds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            training.save_weights_and_get_sampling_client().result()
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, default=32)
    options = parse_options(parser)
    figures = {
        "engine_milliseconds": 1e3 * engine_seconds(options.device, options.rank),
        "wire_milliseconds": 1e3 * wire_seconds(options.device, options.rank),
    }
    for name, value in figures.items():
        print(f"{name:20} {value:8.2f}")
    if options.save:
        save_record("publish", vars(options), figures)


if __name__ == "__main__":
    main()
