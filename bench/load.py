"""64 clients of one server at once, with the loads that exhaust servers of the same protocol; none may fail.

512 samples at once, and 208 training bodies of 3.3 MB. Meanwhile a process of its own asks for heartbeats over raw
HTTP, every 20 ms: how long they take is how deaf the server is. Its engine sleeps.

python -m bench.load
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
from bench.harness import save_record
from bench.server_cost import COSTS, started

NUM_CLIENTS, NUM_KEYS, NUM_PROCESSES = 64, 8, 2
NUM_SAMPLES, NUM_BODIES, BODY_BYTES = 512, 208, 3_300_000
_TOKEN_BYTES = 16
"""Of a training body, with its target and its weight."""
_HEARTBEAT_SECONDS = 0.02


def key(index: int) -> str:
    """Of a client's tenant."""
    return f"tml-bench-{index % NUM_KEYS}"


def share(total: int, index: int) -> int:
    """How many of a total one client asks for."""
    return total * (index + 1) // NUM_CLIENTS - total * index // NUM_CLIENTS


def clients(url: str, indices: Sequence[int], ready: Any) -> dict[str, float]:
    """Some of the clients, in a process of theirs; seconds by load. Raises if a request fails."""
    import tinker
    from tinker import types

    trainers = []
    for index in indices:
        service = tinker.ServiceClient(base_url=url, api_key=key(index))
        trainers.append(service.create_lora_training_client("cookhouse/tiny", rank=32).result())
    samplers = [trainer.save_weights_and_get_sampling_client().result() for trainer in trainers]
    tokens_T = np.arange(BODY_BYTES // _TOKEN_BYTES) % 1000
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(tokens_T.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(tokens_T),
            "weights": types.TensorData.from_numpy(np.ones(len(tokens_T), np.float32)),
        },
    )
    prompt = types.ModelInput.from_ints(list(range(1, 17)))
    params = types.SamplingParams(max_tokens=16, stop=[-1], seed=1)
    taken = {}
    ready.wait()
    began_at = time.perf_counter()
    futures = [
        sampler.sample(prompt, 1, params)
        for index, sampler in zip(indices, samplers, strict=True)
        for _ in range(share(NUM_SAMPLES, index))
    ]
    for future in futures:
        assert len(future.result().sequences) == 1
    taken["samples"] = time.perf_counter() - began_at
    ready.wait()
    began_at = time.perf_counter()
    passes = [
        trainer.forward_backward([datum], "cross_entropy")
        for index, trainer in zip(indices, trainers, strict=True)
        for _ in range(share(NUM_BODIES, index))
    ]
    for each in passes:
        assert len(each.result().loss_fn_outputs) == 1
    taken["bodies"] = time.perf_counter() - began_at
    return taken


def heartbeats(url: str, ended: Event) -> list[float]:
    """Milliseconds of each heartbeat until the end."""
    import httpx

    taken = []
    headers = {"X-API-Key": key(0)}
    with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60, trust_env=False) as http:
        session = http.post("/create_session", json={"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}).json()
        while not ended.is_set():
            began_at = time.perf_counter()
            http.post("/session_heartbeat", json={"session_id": session["session_id"]}).raise_for_status()
            taken.append(1e3 * (time.perf_counter() - began_at))
            time.sleep(_HEARTBEAT_SECONDS)
    return taken


def main() -> None:
    """Print how long the loads take, and heartbeats beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        manager = stack.enter_context(context.Manager())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        keys = ",".join(key(index) for index in range(NUM_KEYS))
        url, _ = stack.enter_context(
            started("bench.simulated_server", f"{folder}/state", json.dumps(asdict(COSTS)), keys=keys)
        )
        pool = stack.enter_context(context.Pool(NUM_PROCESSES + 1))
        ended, ready = manager.Event(), manager.Barrier(NUM_PROCESSES)
        beating = pool.apply_async(heartbeats, (url, ended))
        loads = [
            pool.apply_async(clients, (url, range(index, NUM_CLIENTS, NUM_PROCESSES), ready))
            for index in range(NUM_PROCESSES)
        ]
        taken = [load.get() for load in loads]
        ended.set()
        beats = beating.get()
    figures = {f"{load}_seconds": max(each[load] for each in taken) for load in taken[0]}
    figures["heartbeat_median_milliseconds"] = statistics.median(beats)
    figures["heartbeat_p95_milliseconds"] = statistics.quantiles(beats, n=20)[-1]
    figures["heartbeat_most_milliseconds"] = max(beats)
    for name, value in figures.items():
        print(f"{name:32} {value:8.1f}")
    print(f"{len(beats)} heartbeats; no request failed")
    if options.save:
        save_record("load", vars(options), figures)


if __name__ == "__main__":
    main()
