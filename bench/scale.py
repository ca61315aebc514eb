"""How a server's speed grows with its workers, which sleep: of 64 tenants over HTTP, in real time.

Each pass, and each step's samples, takes a worker half a second, whatever else it does. Tenants send what the SDK once
sent, with other identities, from processes of their own. The server has a core to itself, where there are two. For each
number of workers it prints the work that these have done, in seconds of work a second, against as many times one worker
(what is missing is the server's or the way through it), what a second of its event loop went to, and how late that
loop was. A round is a step of each tenant: 32 s of one worker, with samples 64.

python -m bench.scale
python -m bench.scale --loop rl --workers 4,8 --rounds 6
"""

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.harness import save_record
from bench.recorded import Recorded, record
from bench.replay import LOOPS, Done, replay
from bench.server_cost import started
from bench.simulated_server import FIGURES

from cookhouse.engine.simulated import Costs

NUM_PROCESSES = 2
NUM_SEQUENCES, NUM_TOKENS = 16, 128
"""Of a pass."""
NUM_SAMPLES, PROMPT_TOKENS, MAX_TOKENS = 128, 16, 16
"""Of a step of reinforcement learning."""
PASS_SECONDS = 0.5
_STEP_SECONDS = {"supervised": PASS_SECONDS, "rl": 2 * PASS_SECONDS}
"""Of a worker, for one step of a tenant."""
_SHORTEST_SECONDS = 20.0
"""Of a measurement."""
COSTS = Costs(
    # By the token, so that passes that run together take as long as one after another.
    pass_seconds=0.0,
    pass_token_seconds=PASS_SECONDS / (NUM_SEQUENCES * NUM_TOKENS),
    step_seconds=0.0,
    decode_seconds=0.0,
    decode_token_seconds=PASS_SECONDS / (NUM_SAMPLES * MAX_TOKENS),
    prompt_token_seconds=0.0,
    save_seconds=0.002,
)
_LOOK_SECONDS = 0.05


def measure(pool: Mapping[str, int], options: argparse.Namespace, recorded: Mapping[str, Recorded]) -> dict[str, Any]:
    """What a server with a pool of workers comes to: what it says of itself, and what its clients say."""
    context = multiprocessing.get_context("spawn")
    keys = [f"tml-bench-{index}" for index in range(options.tenants)]
    num_requests = NUM_SAMPLES // options.group_size
    costs = asdict(COSTS) | {"decode_token_seconds": COSTS.decode_token_seconds * options.group_size}
    round_seconds = options.tenants * _STEP_SECONDS[options.loop] / sum(pool.values())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = ("bench.simulated_server", f"{folder}/state", json.dumps(costs), json.dumps(pool))
        url, pid = stack.enter_context(started(*command, keys=",".join(keys)))
        manager = stack.enter_context(context.Manager())
        clients = stack.enter_context(context.Pool(NUM_PROCESSES))
        ready, ended = manager.Barrier(NUM_PROCESSES + 1), manager.Event()
        arguments = (options.loop, recorded, num_requests, ready, ended)
        running = [
            clients.apply_async(replay, (url, keys[index::NUM_PROCESSES], *arguments)) for index in range(NUM_PROCESSES)
        ]
        ready.wait(120)
        time.sleep(max(_SHORTEST_SECONDS / 4, round_seconds))
        os.kill(pid, signal.SIGUSR1)
        began_at = time.monotonic()
        time.sleep(max(_SHORTEST_SECONDS, options.rounds * round_seconds))
        os.kill(pid, signal.SIGUSR2)
        ended_at = time.monotonic()
        watched = _read(folder / "state" / FIGURES)
        ended.set()
        done = [each.get(60) for each in running]
    return watched | _of_clients(done, began_at, ended_at)


def _read(file: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline, "the server measured nothing"
        time.sleep(_LOOK_SECONDS)
    found: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
    return found


def _of_clients(done: Sequence[Done], began_at: float, ended_at: float) -> dict[str, float]:
    def number(times: Sequence[float]) -> int:
        return sum(began_at <= each <= ended_at for each in times)

    seconds = ended_at - began_at
    waits = [wait for each in done for at, wait in each.waits if began_at <= at <= ended_at]
    return {
        "requests_per_second": sum(number(each.requests) for each in done) / seconds,
        "steps_per_second": sum(number(each.steps) for each in done) / seconds,
        "wait_median_seconds": statistics.median(waits) if waits else 0.0,
        "refused": float(sum(each.num_refused for each in done)),
        "clients_processor_seconds": sum(each.processor_seconds for each in done),
    }


def _pool(number: int, samplers: int | None) -> dict[str, int]:
    return {"workers": number} if samplers is None else {"trainers": number - samplers, "samplers": samplers}


def main() -> None:
    """Print and keep what each number of workers comes to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=list(LOOPS), default="supervised")
    parser.add_argument(
        "--workers", default="1,2,4,8,16", help="numbers of them, the first of which others are held to"
    )
    parser.add_argument("--samplers", type=int, help="of these so many only sample, and the others only train")
    parser.add_argument("--tenants", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=8, help="samples of a request; a step has 128")
    parser.add_argument("--rounds", type=float, default=3.0, help="that are measured, after one; 20 s at least")
    parser.add_argument("--parts", type=int, default=8, help="of the event loop's time, the largest, that are printed")
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    recorded = record(
        num_sequences=NUM_SEQUENCES,
        num_tokens=NUM_TOKENS,
        prompt_tokens=PROMPT_TOKENS,
        group_size=options.group_size,
        max_tokens=MAX_TOKENS,
    )
    figures: dict[str, float] = {}
    first: tuple[int, float] | None = None
    for number in (int(word) for word in options.workers.split(",")):
        found = measure(_pool(number, options.samplers), options, recorded)
        busy = sum(found["busy"].values())
        first = first or (number, busy)
        ratio = busy / first[1] * first[0] / number
        print(
            f"{number:2} workers: {busy:5.2f} s of work a second, {ratio:4.2f} of linear; "
            f"{found['requests_per_second']:6.1f} results/s, {found['steps_per_second']:5.2f} steps/s, each after "
            f"{found['wait_median_seconds']:.1f} s; event loop busy {found['loop_cpu']:4.2f}, threads "
            f"{found['threads_cpu']:4.2f}, late by {found['lag_p99_milliseconds']:.1f} ms (p99)"
        )
        print(f"   each worker: {' '.join(f'{share:.2f}' for share in found['busy'].values())}")
        parts = list(found["parts"].items())[: options.parts]
        print(f"   of the event loop: {', '.join(f'{name} {1e3 * share:.0f} ms/s' for name, share in parts)}")
        plain = {name: value for name, value in found.items() if isinstance(value, float)}
        plain |= {"busy": busy, "ratio": ratio}
        plain |= {f"loop_{name}": share for name, share in found["parts"].items()}
        figures |= {f"{name}_at_{number}": value for name, value in plain.items()}
    if options.save:
        save_record(f"scale-{options.loop}{'-apart' if options.samplers else ''}", vars(options), figures)


if __name__ == "__main__":
    main()
