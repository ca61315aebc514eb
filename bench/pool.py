"""Two workers of one thread each against one of two, on the same cores: steps a second of all tenants, over the wire.

Supervised tenants send a step before the last one is answered. Those of reinforcement learning draw 16 groups of 8
answers from new weights, and then take a step on them. The servers take turns.

python -m bench.pool
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench.harness import MODEL_HELP, Server, model_folder, parse_options, save_record, serving

POOLS: Mapping[str, tuple[str, ...]] = {"one": (), "two": ("--workers", "2")}
_VOCAB = 2000
_BATCH, _TOKENS = 16, 128
_NUM_PROMPTS, _GROUP_SIZE, _ANSWER_TOKENS = 16, 8, 64


def supervised(trainer: Any, num_steps: int) -> None:
    """Passes and steps, two of each under way."""
    from tinker import types

    batch = [_datum(np.arange(_TOKENS + 1) % _VOCAB, "weights") for _ in range(_BATCH)]
    before: tuple[Any, ...] = ()
    for _ in range(num_steps):
        now = (trainer.forward_backward(batch, "cross_entropy"), trainer.optim_step(types.AdamParams()))
        for future in before:
            future.result()
        before = now
    for future in before:
        future.result()


def rl(trainer: Any, num_steps: int) -> None:
    """New weights, answers drawn from them, and a step on these."""
    from tinker import types

    prompt = list(range(1, 17))
    params = types.SamplingParams(max_tokens=_ANSWER_TOKENS, temperature=1.0, stop=[])
    for _ in range(num_steps):
        sampler = trainer.save_weights_and_get_sampling_client().result()
        drawing = [sampler.sample(types.ModelInput.from_ints(prompt), _GROUP_SIZE, params) for _ in range(_NUM_PROMPTS)]
        answers = [sequence for drawn in drawing for sequence in drawn.result().sequences]
        data = [_datum(np.array([*prompt, *answer.tokens]), "advantages") for answer in answers]
        futures = (trainer.forward_backward(data, "importance_sampling"), trainer.optim_step(types.AdamParams()))
        for future in futures:
            future.result()


LOOPS: Mapping[str, Callable[[Any, int], None]] = {"supervised": supervised, "rl": rl}


def _datum(tokens_T: Any, name: str) -> Any:
    from tinker import types

    ones_T = np.ones(len(tokens_T) - 1, np.float32)
    inputs = {"target_tokens": types.TensorData.from_numpy(tokens_T[1:]), name: types.TensorData.from_numpy(ones_T)}
    if name == "advantages":
        inputs["logprobs"] = types.TensorData.from_numpy(-ones_T)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens_T[:-1].tolist()), loss_fn_inputs=inputs)


def steps_per_second(server: Server, model: str, loop: str, num_tenants: int, num_steps: int) -> float:
    """Of so many tenants at once, each with a model of its own, after a step that warms up."""
    import tinker

    ready = threading.Barrier(num_tenants + 1)

    def live(tenant: int) -> None:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        try:
            trainer = service.create_lora_training_client(model, rank=32, seed=tenant).result()
            LOOPS[loop](trainer, 1)
        except BaseException:
            ready.abort()
            raise
        ready.wait()
        LOOPS[loop](trainer, num_steps)

    with ThreadPoolExecutor(num_tenants) as threads:
        tenants = [threads.submit(live, tenant) for tenant in range(num_tenants)]
        ready.wait(300)
        began_at = time.perf_counter()
        for each in tenants:
            each.result()
    return num_tenants * num_steps / (time.perf_counter() - began_at)


def main() -> None:
    """Print what each pool gives one tenant and two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--tenants", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=10, help="of each tenant, in each round")
    parser.add_argument("--rounds", type=int, default=3, help="times that the pools take turns")
    options = parse_options(parser)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        words = ("--precision", options.precision, "--base-model", model)
        servers = {name: stack.enter_context(serving(options.device, *words, *pool)) for name, pool in POOLS.items()}
        for loop in options.loops:
            for count in options.tenants:
                found: dict[str, list[float]] = {name: [] for name in POOLS}
                for _ in range(options.rounds):
                    for name, server in servers.items():
                        found[name].append(steps_per_second(server, model, loop, count, options.steps))
                one, two = (median(found[name]) for name in POOLS)
                print(
                    f"{loop:10} {count} tenants: two workers {two:6.2f} steps/s, one {one:6.2f}, ratio {two / one:.2f}",
                    flush=True,
                )
                figures |= {f"{loop}_{count}_two": two, f"{loop}_{count}_one": one, f"{loop}_{count}_ratio": two / one}
    if options.save:
        save_record(f"pool-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()
