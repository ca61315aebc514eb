"""What the server costs beside its engine, which sleeps for fixed times: milliseconds above those of a trivial server.

The trivial server has the same endpoints over the same uvicorn, and its answers ready. Both are asked by the published
SDK, in turn, so that what the SDK itself takes is in both.

python -m bench.server_cost
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from bench.harness import save_record

from cookhouse.algorithms.base.process_tree import own_cpu_seconds
from cookhouse.engine.simulated import Costs

KEY = "tml-bench"
COSTS = Costs(pass_token_seconds=0.0, decode_token_seconds=0.0, prompt_token_seconds=0.0, save_seconds=0.0)
NUM_SEQUENCES, NUM_TOKENS = 16, 128
"""Of a training step."""
NUM_SAMPLES, MAX_TOKENS = 128, 16


@contextmanager
def started(*command: str, keys: str = KEY) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, which prints its URL first: that, and the process."""
    environment = os.environ | {"COOKHOUSE_API_KEYS": keys}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.communicate("")


class Side:
    """One server as the SDK sees it."""

    def __init__(self, url: str, pid: int) -> None:
        import tinker
        from tinker import types

        self._pid = pid
        self._types = types
        service = tinker.ServiceClient(base_url=url, api_key=KEY)
        self._training = service.create_lora_training_client("cookhouse/tiny", rank=32).result()
        self._sampling = self._training.save_weights_and_get_sampling_client().result()
        tokens_T = np.arange(NUM_TOKENS)
        datum = types.Datum(
            model_input=types.ModelInput.from_ints(tokens_T.tolist()),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(tokens_T + 1),
                "weights": types.TensorData.from_numpy(np.ones(NUM_TOKENS, np.float32)),
            },
        )
        self._batch = [datum] * NUM_SEQUENCES

    def cpu_milliseconds(self) -> float:
        """Processor time that the server has used, its engine's process not counted."""
        return 1e3 * own_cpu_seconds(self._pid)

    def step(self) -> None:
        """A forward_backward and an optim_step, both sent before either is waited for."""
        futures = (
            self._training.forward_backward(self._batch, "cross_entropy"),
            self._training.optim_step(self._types.AdamParams(learning_rate=1e-4)),
        )
        for future in futures:
            future.result()

    def publish(self) -> None:
        """New weights for a new sampling client."""
        self._training.save_weights_and_get_sampling_client().result()

    def samples(self) -> None:
        """Many calls of one sample each, at once."""
        prompt = self._types.ModelInput.from_ints(list(range(1, 17)))
        params = self._types.SamplingParams(max_tokens=MAX_TOKENS, stop=[-1], seed=1)
        futures = [self._sampling.sample(prompt, 1, params) for _ in range(NUM_SAMPLES)]
        for future in futures:
            future.result()


@dataclass(frozen=True)
class Taken:
    """Milliseconds of a call: the median, and the mean of the server's processor time."""

    elapsed: float
    cpu: float


def measure(sides: Mapping[str, Side], kind: str, rounds: int) -> dict[str, Taken]:
    """What a call takes on each side, the sides in turn."""
    elapsed: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        getattr(side, kind)()  # opens connections
    used = {name: side.cpu_milliseconds() for name, side in sides.items()}
    for _ in range(rounds):
        for name, side in sides.items():
            began_at = time.perf_counter()
            getattr(side, kind)()
            elapsed[name].append(1e3 * (time.perf_counter() - began_at))
    return {
        name: Taken(statistics.median(elapsed[name]), (side.cpu_milliseconds() - used[name]) / rounds)
        for name, side in sides.items()
    }


def main() -> None:
    """Print what each side takes, and the server's share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--server", default="bench.simulated_server", help="module that starts ours")
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    trivial: dict[str, Any] = {"shape": (NUM_SEQUENCES, NUM_TOKENS), "max_tokens": MAX_TOKENS, "costs": asdict(COSTS)}
    figures = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ours = stack.enter_context(started(options.server, f"{folder}/state", json.dumps(asdict(COSTS))))
        theirs = stack.enter_context(started("bench.trivial_server", json.dumps(trivial)))
        sides = {"ours": Side(*ours), "trivial": Side(*theirs)}
        for kind in ("step", "publish", "samples"):
            rounds = max(options.rounds // (10 if kind == "samples" else 1), 3)
            taken = measure(sides, kind, rounds)
            our, their = taken["ours"], taken["trivial"]
            print(
                f"{kind:8} ours {our.elapsed:7.1f} ms, trivial {their.elapsed:7.1f} ms, "
                f"our share {our.elapsed - their.elapsed:6.1f} ms; processor time {our.cpu:.1f} and {their.cpu:.1f} ms"
            )
            figures[f"{kind}_share_milliseconds"] = our.elapsed - their.elapsed
            for name, each in taken.items():
                figures |= {f"{kind}_{name}_{part}_milliseconds": value for part, value in asdict(each).items()}
    if options.save:
        save_record("server-cost", vars(options), figures)


if __name__ == "__main__":
    main()
