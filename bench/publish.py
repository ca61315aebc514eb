"""Milliseconds to publish new sampler weights of the embedded model: the engine's pointer swap, and over the wire.

python -m bench.publish
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from bench.harness import save_record

from cookhouse.assets import TINY_MODEL

ROUNDS = 30


def engine_seconds(rank: int) -> float:
    """Median seconds of `snapshot` in the engine."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    engine = TorchEngine(base_models=[TINY_MODEL])
    engine.create_model("m", TINY_MODEL, LoraSpec(rank=rank))
    seconds = []
    for i in range(ROUNDS):
        start = time.perf_counter()
        engine.snapshot("m", str(i))
        seconds.append(time.perf_counter() - start)
        engine.delete_snapshot(str(i))
    return statistics.median(seconds)


def wire_seconds(rank: int) -> float:
    """Median seconds of `save_weights_and_get_sampling_client` through the SDK against a server process."""
    import tinker

    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [sys.executable, "-m", "cookhouse.server", "--json", "--watch-stdin", "--state-dir", state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"COOKHOUSE_API_KEYS": "tml-bench"},
        )
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        training = tinker.ServiceClient(base_url=url, api_key="tml-bench").create_lora_training_client(
            TINY_MODEL, rank=rank
        )
        seconds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            training.save_weights_and_get_sampling_client().result()
            seconds.append(time.perf_counter() - start)
        process.communicate("")
    return statistics.median(seconds)


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    figures = {
        "engine_milliseconds": 1e3 * engine_seconds(options.rank),
        "wire_milliseconds": 1e3 * wire_seconds(options.rank),
    }
    for name, value in figures.items():
        print(f"{name:20} {value:8.2f}")
    if options.save:
        save_record("publish", vars(options), figures)


if __name__ == "__main__":
    main()
