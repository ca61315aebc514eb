"""How near decoding comes to the bound of the memory's bandwidth: bytes that a step has to read, over its time."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench.harness import now

PROMPT_TOKENS = 256
_STEPS = (32, 160)
_ROUNDS = 3
_COPIED_BYTES = 2**30
_COPY_SECONDS = 1.0
_PEAKS = (
    ("B200", 8000, "https://www.nvidia.com/en-us/data-center/dgx-b200/"),
    ("H200", 4800, "https://www.nvidia.com/en-us/data-center/h200/"),
    ("H100 NVL", 3900, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("H100 PCIe", 2000, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("H100", 3350, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("A100-SXM4-80GB", 2039, "https://www.nvidia.com/en-us/data-center/a100/"),
    ("A100-SXM4-40GB", 1555, "https://www.nvidia.com/en-us/data-center/a100/"),
    ("L40S", 864, "https://www.nvidia.com/en-us/data-center/l40s/"),
    ("RTX 4090", 1008, "NVIDIA Ada GPU architecture, appendix A"),
)
"""Part of a GPU's name, GB/s of its memory, the vendor's datasheet. The first that matches counts."""


def peak_bandwidth(device: str) -> tuple[float, str]:
    """Bytes per second that can be read, and where the figure comes from."""
    import torch

    if device == "cuda":
        name = torch.cuda.get_device_name()
        for part, gigabytes, source in _PEAKS:
            if part in name:
                return gigabytes * 1e9, f"{name}, {source}"
    return copy_bandwidth(device), "measured: the best copy, its bytes counted as read and as written"


def copy_bandwidth(device: str) -> float:
    """Bytes per second of a copy within the device's memory: each is read and written, and counts twice."""
    import torch

    source, target = (
        torch.ones(_COPIED_BYTES // (1 if device == "cuda" else 16), dtype=torch.uint8, device=device) for _ in "ab"
    )
    best = _best_seconds(lambda: target.copy_(source), device)
    return 2 * source.numel() / best


def decode_figures(engine: Any, model: str, device: str, rows: int) -> dict[str, float]:
    """Seconds of a step of so many rows, the bytes it has to read, and their share of the bandwidth.

    A step reads each weight of the matrices once, the head's among them, and keys and values of each row's context.
    Prompts differ in their first token, so that none shares a prefix. The time is the difference of a long load to a
    short one, so that prefill falls out.
    """
    base = engine._bases[model]
    vocab_size = base.info.vocab_size
    attempts: list[list[float]] = [[], []]
    for attempt in range(_ROUNDS + 1):
        for seconds, num_new in zip(attempts, _STEPS, strict=True):
            taken = _seconds(engine, model, device, rows, num_new, vocab_size)
            # The first attempt compiles and captures.
            seconds += [taken] if attempt else []
    step = (min(attempts[1]) - min(attempts[0])) / (_STEPS[1] - _STEPS[0])
    weights = sum(site.in_features * site.out_features for site in base.sites) * base.dtype.itemsize
    context = PROMPT_TOKENS + sum(_STEPS) / 2
    read = weights + rows * context * base.cache_shape.num_features * base.dtype.itemsize
    peak, source = peak_bandwidth(device)
    print(f"bandwidth {peak / 1e9:.0f} GB/s ({source})", flush=True)
    return {
        f"decode_{rows}_milliseconds": 1e3 * step,
        f"decode_{rows}_tokens_per_second": rows / step,
        f"decode_{rows}_gigabytes": read / 1e9,
        f"decode_{rows}_bandwidth_share": read / step / peak,
    }


def _seconds(engine: Any, model: str, device: str, rows: int, num_new: int, vocab_size: int) -> float:
    from cookhouse.engine.contract import SampleRequest

    rng = np.random.default_rng(0)
    for i in range(rows):
        prompt_T = rng.integers(0, vocab_size, PROMPT_TOKENS)
        prompt_T[0] = i
        engine.submit_sample(
            SampleRequest(
                request_id=str(i),
                base_model=model,
                snapshot_id=None,
                prompt_T=prompt_T,
                max_tokens=num_new,
                stop=[],
                seed=i,
            )
        )
    start = now(device)
    while engine.has_samples():
        for output in engine.step_samples():
            if error := getattr(output, "error", None):
                raise RuntimeError(f"a sample failed: {error}")
    return now(device) - start


def _best_seconds(work: Callable[[], object], device: str) -> float:
    best, deadline = float("inf"), time.perf_counter() + _COPY_SECONDS
    while time.perf_counter() < deadline or best == float("inf"):
        start = now(device)
        work()
        best = min(best, now(device) - start)
    return best
